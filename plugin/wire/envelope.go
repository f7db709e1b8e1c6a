package wire

import "encoding/json"

// SpecVersion is the CloudEvents version of every envelope.
const SpecVersion = "1.0"

// Envelope is a CloudEvents 1.0 event in structured JSON mode. Signature (over the exact bytes of
// Data) and KeyID are extension attributes, empty until orders are signed.
type Envelope struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Time            Time            `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Subject         string          `json:"subject,omitempty"`
	KeyID           string          `json:"keyid,omitempty"`
	Signature       string          `json:"signature,omitempty"`
	Data            json.RawMessage `json:"data"`
}
