package natsbus

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/wire"
)

// options make the client verify and show certificates; none where no file is named. It reads the files at each
// connection, so that renewed ones count.
func (f TLSFiles) options() []nats.Option {
	if f == (TLSFiles{}) {
		return nil
	}
	options := []nats.Option{nats.Secure()}
	if f.CAFile != "" {
		options = append(options, nats.RootCAs(f.CAFile))
	}
	if f.CertFile != "" {
		options = append(options, nats.ClientCert(f.CertFile, f.KeyFile))
	}
	return options
}

// keepConnected keeps one connection in the background. It calls stands with the connection once it is made, and with nil
// when it is lost, and failed with each error that the client reports. The client reconnects by itself; where it closes the
// connection for good, as it does once a server has refused its login twice, another one is made, with the login as it is by
// then. stands must not wait: what the client itself knows of its state can be read only under a lock that it keeps for
// seconds while it reconnects.
func keepConnected(ctx context.Context, options Options, name string, failed func(error), stands func(*nats.Conn), more ...nats.Option) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "connection", name)
	said := &failures{logger: logger, servers: redacted(options.URL)}
	client := append([]nats.Option{
		nats.Name(name),
		nats.CustomInboxPrefix(cmp.Or(options.Inbox, wire.Inbox)),
		nats.Timeout(connectTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		// The dialer looks the host up itself, and tries all its addresses, within its time-out; the client's own look-up
		// has none.
		nats.SkipHostLookup(),
		// Without a buffer a publish fails at once while disconnected. With one it would be replayed
		// late, after the plugin has given the order up.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Error(err, "nats_error")
			failed(err)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { said.tell(err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			stands(nil)
			logger.Info("nats_disconnected", "reason", errorText(err))
		}),
		nats.ConnectHandler(func(nc *nats.Conn) {
			stands(nc)
			logger.Info("nats_connected", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			stands(nc)
			logger.Info("nats_reconnected", "server", nc.ConnectedUrlRedacted())
		}),
	}, more...)
	if options.CredentialsFile != "" {
		client = append(client, nats.UserCredentials(options.CredentialsFile))
	}
	if options.Username != "" {
		client = append(client, nats.UserInfoHandler(func() (string, string) {
			password, err := os.ReadFile(options.PasswordFile)
			if err != nil {
				logger.Error(err, "nats_password_unreadable", "file", options.PasswordFile)
			}
			return options.Username, strings.TrimRight(string(password), "\r\n")
		}))
	}
	client = append(client, options.TLS.options()...)
	// The first attempt blocks until a server answers or the time-out is over: not in the scheduler's start.
	goroutines.KeepRunning(ctx, "follow", func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := connectOnce(ctx, options, stands, said, client); err != nil {
				said.tell(err)
			}
			goroutines.Sleep(ctx, retryDelay)
		}
	})
}

// connectOnce makes a connection, and returns when it is closed for good, or the context has ended.
func connectOnce(ctx context.Context, options Options, stands func(*nats.Conn), said *failures, client []nats.Option) error {
	open, closed := context.WithCancel(ctx)
	defer closed()
	own := []nats.Option{nats.ClosedHandler(func(*nats.Conn) {
		stands(nil)
		closed()
	})}
	if options.NkeySeedFile != "" {
		// It announces one public key for as long as it lives, and signs by the seed that the file has by then.
		login, err := nats.NkeyOptionFromSeed(options.NkeySeedFile)
		if err != nil {
			return fmt.Errorf("%s holds no seed of a NATS user (SU…): %w", options.NkeySeedFile, err)
		}
		own = append(own, login)
	}
	nc, err := nats.Connect(options.URL, slices.Concat(client, own)...)
	if err != nil {
		return err
	}
	defer nc.Close()
	look := time.NewTicker(failuresInterval)
	defer look.Stop()
	for open.Err() == nil {
		select {
		case <-look.C:
			// The client calls no handler where a server takes the connection and then refuses the client, as with TLS 1.3.
			if err := nc.LastError(); err != nil && !nc.IsConnected() {
				said.tell(err)
			}
		case <-open.Done():
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(nc.LastError(), errClosed)
}

// errClosed says that the client has closed a connection for good without an error.
var errClosed = errors.New("the connection was closed")

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// NewIdentity names this process: hostname_pid_random.
func NewIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s_%d_%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}
