package natsbus

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

// sameFailure is for how long the same failure is logged once: attempts come four times a second.
const sameFailure = time.Minute

// failures logs why no connection to NATS can be made, in words for people.
type failures struct {
	logger  klog.Logger
	servers string // without passwords

	mu   sync.Mutex
	said string
	at   time.Time
}

// tell logs a failed attempt, unless the same was logged a moment ago.
func (f *failures) tell(err error) {
	reason := reasonOf(err)
	f.mu.Lock()
	told := reason == f.said && time.Since(f.at) < sameFailure
	if !told {
		f.said, f.at = reason, time.Now()
	}
	f.mu.Unlock()
	if !told {
		f.logger.Error(nil, "nats_connect_failed", "servers", f.servers, "reason", reason)
	}
}

// reasonOf says what went wrong with a connection, and what to do where TLS is what is wrong.
func reasonOf(err error) string {
	var other x509.HostnameError
	var untrusted x509.UnknownAuthorityError
	switch text := errorText(err); {
	case errors.As(err, &other):
		return "its certificate is not valid for '" + other.Host + "'; address it in natsURL by a name that its certificate has, or have it issued for this one"
	case errors.As(err, &untrusted):
		return "its certificate is not trusted: the authority that issued it is not known; name that authority in tls.caFile"
	case strings.Contains(text, "tls: certificate required"):
		return "it asks for a client certificate, and got none; name one of an authority that it trusts in tls.certFile and tls.keyFile"
	case strings.Contains(text, "tls: unknown certificate authority"):
		return "it does not trust the authority of the client certificate; name another one in tls.certFile and tls.keyFile"
	case strings.Contains(text, "tls: bad certificate"), strings.Contains(text, "tls: expired certificate"):
		return "it refuses the client certificate; name another one in tls.certFile and tls.keyFile"
	case errors.Is(err, nats.ErrAuthorization):
		return "it does not admit this client; name another login in credentialsFile, nkeySeedFile, or username and passwordFile, or another certificate in tls.certFile and tls.keyFile"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "it does not speak TLS, which tls asks for: the connection would be in clear"
	default:
		return strings.TrimPrefix(text, "nats: ")
	}
}

// redacted are the URLs of servers without passwords.
func redacted(urls string) string {
	var hosts []string
	for one := range strings.SplitSeq(urls, ",") {
		if parsed, err := url.Parse(strings.TrimSpace(one)); err == nil {
			hosts = append(hosts, parsed.Redacted())
		}
	}
	return strings.Join(hosts, ",")
}

// denialMemory is how long a publish or subscription that NATS denied counts as trouble, as in planner and evictor.
const denialMemory = time.Minute

// denials remember the last thing that NATS denied this process's login.
type denials struct {
	clock clock.PassiveClock
	last  atomic.Pointer[denial]
}

type denial struct {
	at     time.Time
	reason string
}

// note counts an error of the NATS client.
func (d *denials) note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		natsErrors.WithLabelValues("other").Inc()
		return
	}
	natsErrors.WithLabelValues("permission").Inc()
	d.last.Store(&denial{at: d.clock.Now(), reason: err.Error()})
}

func (d *denials) lately() string {
	last := d.last.Load()
	if last == nil || d.clock.Since(last.at) > denialMemory {
		return ""
	}
	return last.reason
}

var (
	messagesIgnored = telemetry.CounterVec("makeway_scheduler_ignored_messages_total",
		"Messages of the streams of orders, outcomes and control states that were ignored, by reason: too-large, too-deep, not-json, invalid, unknown-version, unknown-type, wrong-subject, other-cluster, not-after-too-far, old-revision, future-revision, unusable-queues, unsigned, unknown-key, invalid-signature, other.", "reason")

	natsErrors = telemetry.CounterVec("makeway_scheduler_nats_errors_total",
		"Errors that the NATS client reported, by kind: permission (a publish or subscription was denied), other.", "kind")

	repliesRefused = telemetry.Counter("makeway_scheduler_replies_refused_total",
		"Questions about the scheduler's status that asked to be answered elsewhere than in an inbox of makeway's, and were left alone: the answer could have been stored as a message.")
)
