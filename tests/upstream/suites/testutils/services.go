//go:build !kube136

package testutils

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// directory is where the driver looks for API servers that have been started: each is a numbered directory in it.
var directory = os.Getenv("MAKEWAY_SUITES_DIRECTORY")

// What is written into an API server's directory, by whom, and when.
const (
	kubeconfigFile = "kubeconfig" // here, once the API server runs
	natsFile       = "nats-url"   // by the driver, once all runs that MakeWay needs
	endFile        = "end"        // here, before the API server ends
	endedFile      = "ended"      // by the driver, once nothing of that runs any more
)

const (
	answerPoll    = 20 * time.Millisecond
	answerTimeout = 2 * time.Minute
)

// servers are those of this process: how many there were, and by URL where their NATS listens.
var servers = struct {
	sync.Mutex
	started int
	natsURL map[string]string
}{natsURL: map[string]string{}}

// startServices has the driver start nats-server, planner and evictor for an API server, and returns what has it stop
// them.
func startServices(t *testing.T, config *restclient.Config) (stop func()) {
	t.Helper()
	if directory == "" {
		t.Fatal("MAKEWAY_SUITES_DIRECTORY is not set: the tests are run by tests/upstream_suites")
	}
	servers.Lock()
	servers.started++
	own := filepath.Join(directory, fmt.Sprint(servers.started))
	servers.Unlock()
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "test"), []byte(t.Name()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeKubeconfig(config, filepath.Join(own, kubeconfigFile)); err != nil {
		t.Fatal(err)
	}
	answer, err := await(filepath.Join(own, natsFile))
	if err != nil {
		t.Fatal(err)
	}
	servers.Lock()
	servers.natsURL[config.Host] = strings.TrimSpace(answer)
	servers.Unlock()
	return sync.OnceFunc(func() {
		if err := writeAttempts(); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(own, endFile), nil, 0o600); err != nil {
			t.Error(err)
			return
		}
		if _, err := await(filepath.Join(own, endedFile)); err != nil {
			t.Error(err)
		}
	})
}

// natsURLOf is where the NATS of an API server listens.
func natsURLOf(t *testing.T, config *restclient.Config) string {
	t.Helper()
	servers.Lock()
	defer servers.Unlock()
	url, ok := servers.natsURL[config.Host]
	if !ok {
		t.Fatalf("no services were started for the API server %s", config.Host)
	}
	return url
}

func writeKubeconfig(config *restclient.Config, path string) error {
	written := clientcmdapi.Config{
		CurrentContext: "test",
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		Clusters: map[string]*clientcmdapi.Cluster{"test": {
			Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData,
			TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"test": {Token: config.BearerToken}},
	}
	// In one step, so that the driver does not read half of it.
	if err := clientcmd.WriteToFile(written, path+".new"); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// await returns what a file holds as soon as it is there.
func await(path string) (string, error) {
	for deadline := time.Now().Add(answerTimeout); time.Now().Before(deadline); time.Sleep(answerPoll) {
		if content, err := os.ReadFile(path); err == nil {
			return string(content), nil
		}
	}
	return "", fmt.Errorf("no %s within %s", path, answerTimeout)
}
