package wire

// Version is makeway's, the same as the Python distribution's; the status that components give names it, so
// that a skew between them shows.
const Version = "0.1.0"
