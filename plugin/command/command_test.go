package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"makeway.dev/makeway/plugin/ask"
	makeway "makeway.dev/makeway/plugin/plugin"
	"makeway.dev/makeway/plugin/queues"
)

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{ name: none, cluster: { server: "https://127.0.0.1:1" } }]
contexts: [{ name: none, context: { cluster: none, user: none } }]
current-context: none
users: [{ name: none, user: { token: none } }]
`

// A configuration with MakeWay in its profiles; %s is the kubeconfig's path.
const (
	header = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: { kubeconfig: %s }
leaderElection: { leaderElect: false }
`
	makeWay = `
    plugins: { multiPoint: { enabled: [{ name: MakeWay }] } }
    pluginConfig:
      - name: MakeWay
        args: { natsURL: "nats://127.0.0.1:1", lease: { name: "" } }
`
	both = `
    plugins:
      multiPoint: { enabled: [{ name: MakeWayQueues }, { name: MakeWay }, { name: DefaultPreemption }], disabled: [{ name: DefaultPreemption }] }
      postFilter: { enabled: [{ name: DynamicResources }, { name: MakeWayQueues }, { name: MakeWay }, { name: DefaultPreemption }] }
    pluginConfig:
      - name: MakeWay
        args: { natsURL: "nats://127.0.0.1:1", lease: { name: "" } }
      - name: MakeWayQueues
        args: { natsURL: "nats://127.0.0.1:1", lease: { name: "" } }
`
	ignores = `
      - name: NodeResourcesFit
        args: { ignoredResources: [example.com/of-the-file], ignoredResourceGroups: [example.net] }
`
	extenders = `
extenders:
  - urlPrefix: http://127.0.0.1:1
    filterVerb: filter
    managedResources:
      - { name: example.com/slice, ignoredByScheduler: true }
      - { name: example.com/counted }
  - urlPrefix: http://127.0.0.1:2
    filterVerb: filter
    managedResources: [{ name: example.com/share, ignoredByScheduler: true }]
`
)

// built is a scheduler as the command builds it with the flags: the arguments that MakeWay is handed, MakeWay of each profile,
// and the profiles as their frameworks were built.
func built(t *testing.T, flags ...string) (known ask.ProfileArgs, plugins map[string]*makeway.MakeWay, profiles []config.KubeSchedulerProfile) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	// At this verbosity Setup leaves the built profiles in the configuration that it returns.
	ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(2), textlogger.Output(io.Discard))))
	opts := options.NewOptions()
	command := &cobra.Command{}
	for _, set := range opts.Flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	if err := command.ParseFlags(append(flags, "--secure-port=0")); err != nil {
		t.Fatal(err)
	}
	known, err := profileArgs(command)
	if err != nil {
		t.Fatal(err)
	}
	plugins = map[string]*makeway.MakeWay{}
	completed, _, err := app.Setup(ctx, opts, app.WithPlugin(queues.Name, queues.New), app.WithPlugin(makeway.Name, func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := makeway.NewWith(ctx, object, handle, known)
		if made, ok := plugin.(*makeway.MakeWay); ok {
			plugins[handle.ProfileName()] = made
		}
		return plugin, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	return known, plugins, completed.ComponentConfig.Profiles
}

func TestPlanRequestsCarryTheArgumentsThatTheProfilesAreBuiltWith(t *testing.T) {
	file := func(t *testing.T, name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		profiles string   // of the file; no file where empty
		flags    []string // beside it
		ignored  string
		makeWays int
	}{
		"defaults":             {profiles: "profiles:\n  - schedulerName: a" + makeWay, ignored: "null", makeWays: 1},
		"the file's arguments": {profiles: "profiles:\n  - schedulerName: a" + makeWay + ignores, ignored: `["example.com/of-the-file"]`, makeWays: 1},
		"queues":               {profiles: "profiles:\n  - schedulerName: a" + both, ignored: "null", makeWays: 1},
		"resources that extenders have ignored, in each profile": {
			profiles: "profiles:\n  - schedulerName: a" + makeWay + "  - schedulerName: b" + makeWay + ignores + extenders,
			ignored:  `["example.com/slice","example.com/share"]`, makeWays: 2,
		},
		"deprecated flags beside a file": {
			profiles: "profiles:\n  - schedulerName: a" + makeWay + ignores, flags: []string{"--profiling=false", "--kube-api-qps=7"},
			ignored: `["example.com/of-the-file"]`, makeWays: 1,
		},
		"no file": {ignored: "null"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := file(t, "kubeconfig", kubeconfig)
			flags := append(test.flags, "--kubeconfig="+cluster, "--leader-elect=false")
			if test.profiles != "" {
				flags = append(test.flags, "--config="+file(t, "scheduler.yaml", fmt.Sprintf(header, cluster)+test.profiles))
			}

			known, plugins, profiles := built(t, flags...)

			if len(plugins) != test.makeWays {
				t.Fatalf("%d profiles have MakeWay, want %d", len(plugins), test.makeWays)
			}
			for _, profile := range profiles {
				if args, sent := known[profile.SchedulerName][queues.Name]; sent {
					t.Errorf("planners are told of NATS: %s", args)
				}
				compared := 0
				for _, plugin := range profile.PluginConfig {
					if !scheme.Scheme.Recognizes(config.SchemeGroupVersion.WithKind(plugin.Name + "Args")) {
						continue
					}
					args, err := scheme.Scheme.ConvertToVersion(plugin.Args, configv1.SchemeGroupVersion)
					if err != nil {
						t.Fatal(err)
					}
					want, err := json.Marshal(args)
					if err != nil {
						t.Fatal(err)
					}
					if got := known[profile.SchedulerName][plugin.Name]; string(got) != string(want) {
						t.Errorf("profile %s: %s is asked about with %s, and built with %s", profile.SchedulerName, plugin.Name, got, want)
					}
					if made := plugins[profile.SchedulerName]; made != nil {
						if got, ok := made.Profile().FilterArgs[plugin.Name]; ok && string(got) != string(want) {
							t.Errorf("profile %s: the request has %s of %s, which is built with %s", profile.SchedulerName, got, plugin.Name, want)
						}
					}
					compared++
				}
				var fit struct {
					IgnoredResources json.RawMessage `json:"ignoredResources"`
				}
				if err := json.Unmarshal(known[profile.SchedulerName]["NodeResourcesFit"], &fit); err != nil {
					t.Fatal(err)
				}
				if got := string(fit.IgnoredResources); got != test.ignored && (got != "" || test.ignored != "null") {
					t.Errorf("profile %s ignores %s, want %s", profile.SchedulerName, got, test.ignored)
				}
				if compared < 4 {
					t.Errorf("profile %s: %d plugins compared", profile.SchedulerName, compared)
				}
			}
		})
	}
}
