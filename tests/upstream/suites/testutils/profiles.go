//go:build !kube136

package testutils

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configtesting "k8s.io/kubernetes/pkg/scheduler/apis/config/testing"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"makeway.dev/makeway/plugin/ask"
	makeway "makeway.dev/makeway/plugin/plugin"
)

// WithMakeWay returns the options of a scheduler with MakeWay before DefaultPreemption, as far as its profiles have that.
func WithMakeWay(t *testing.T, testCtx *TestContext, opts []scheduler.Option) []scheduler.Option {
	t.Helper()
	profiles, registry := read(t, opts)
	if len(profiles) == 0 {
		profiles = configtesting.V1ToInternalWithDefaults(t, configv1.KubeSchedulerConfiguration{}).Profiles
	}
	profiles = slices.Clone(profiles)
	for i := range profiles {
		profiles[i] = *profiles[i].DeepCopy()
		replace(&profiles[i], natsURLOf(t, testCtx.KubeConfig))
	}
	// The scheduler's command does this, which the tests do without.
	built, err := ask.ProfileArgsOf(&config.KubeSchedulerConfiguration{Profiles: profiles}, makeway.Name)
	if err != nil {
		t.Fatal(err)
	}
	registry = maps.Clone(registry)
	if registry == nil {
		registry = frameworkruntime.Registry{}
	}
	registry[makeway.Name] = func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return makeway.NewWith(ctx, object, handle, built)
	}
	return append(slices.Clone(opts), scheduler.WithProfiles(profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry))
}

// replace puts the plugin before DefaultPreemption where the profile names that, which is after DynamicResources in the default
// profile; nowhere where it is not enabled or a point disables it.
func replace(profile *config.KubeSchedulerProfile, natsURL string) {
	plugins := reflect.ValueOf(profile.Plugins).Elem()
	for i := range plugins.NumField() {
		set, ok := plugins.Field(i).Addr().Interface().(*config.PluginSet)
		if !ok {
			continue
		}
		at := slices.IndexFunc(set.Enabled, func(one config.Plugin) bool { return one.Name == names.DefaultPreemption })
		if at < 0 {
			continue
		}
		set.Enabled = slices.Insert(set.Enabled, at, config.Plugin{Name: makeway.Name})
	}
	args := fmt.Sprintf(`{"natsURL": %q, "lease": {"name": ""}, "planTimeout": "1s"}`, natsURL)
	profile.PluginConfig = append(profile.PluginConfig, config.PluginConfig{
		Name: makeway.Name,
		Args: &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeJSON},
	})
}

// read returns the profiles and the registry that the options set. What they set is of a type that is not exported.
func read(t *testing.T, opts []scheduler.Option) ([]config.KubeSchedulerProfile, frameworkruntime.Registry) {
	t.Helper()
	options := reflect.New(reflect.TypeFor[scheduler.Option]().In(0).Elem())
	for _, opt := range opts {
		reflect.ValueOf(opt).Call([]reflect.Value{options})
	}
	profiles, wellTyped := field[[]config.KubeSchedulerProfile](options, "profiles")
	registry, alsoWell := field[frameworkruntime.Registry](options, "frameworkOutOfTreeRegistry")
	if !wellTyped || !alsoWell {
		t.Fatal("scheduler.Option does not set what it set in Kubernetes 1.37")
	}
	return profiles, registry
}

// field is a field of the struct that is pointed to; false where it has no such field of that type.
func field[T any](of reflect.Value, name string) (T, bool) {
	found := of.Elem().FieldByName(name)
	if !found.IsValid() || found.Type() != reflect.TypeFor[T]() {
		var none T
		return none, false
	}
	return *(*T)(found.Addr().UnsafePointer()), true
}
