package plugin

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

func brakeOf(data map[string]string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "makeway-system", Name: "makeway-brake"}, Data: data}
}

func TestWhileTheBrakeIsSetNothingIsAskedAndTheModeIsOffWithoutNATS(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	configmaps := w.client.CoreV1().ConfigMaps("makeway-system")
	if _, err := configmaps.Create(w.ctx, brakeOf(map[string]string{"mode": "off", "by": "ops"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e := w.plugin.engine
	w.eventually("it is seen", func() bool { return e.control.Brake() != nil })

	if _, status := w.cycle(p); !strings.Contains(status.Message(), "mode off; nothing is evicted without a plan: the brake is set") || status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("status %v", status)
	}
	if len(w.bus.requests) != 0 {
		t.Errorf("%d plan requests", len(w.bus.requests))
	}
	if status := e.status(); status.Mode != wire.ModeOff || status.Brake != "everywhere" {
		t.Errorf("status %+v", status)
	}

	if err := configmaps.Delete(w.ctx, "makeway-brake", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("its release is seen", func() bool { return e.control.Brake() == nil })
	if _, status := w.cycle(p); strings.Contains(status.Message(), "mode off") {
		t.Errorf("after the release: %v", status)
	}
	if len(w.bus.requests) == 0 {
		t.Error("no plan request after the release")
	}
}

func TestABrakeForANamespaceHoldsItAndNoOther(t *testing.T) {
	w, _, _ := simple(t, setup{objects: []runtime.Object{brakeOf(map[string]string{"mode": "off", "namespaces": "other, batch"})}}, nil)
	e := w.plugin.engine
	w.eventually("it is seen", func() bool { return e.control.Brake() != nil })

	for namespace, want := range map[string]string{"default": wire.ModeEnforce, "other": wire.ModeOff, "batch": wire.ModeOff} {
		if got := e.control.Mode(wire.ModeEnforce, namespace); got != want {
			t.Errorf("%s: %s, want %s", namespace, got, want)
		}
	}
	status := e.status()
	if status.Mode != wire.ModeEnforce || status.Brake != "batch, other" || status.NamespaceModes["batch"] != wire.ModeOff {
		t.Errorf("status %+v", status)
	}
}

func TestAControlStateDoesNotLiftTheBrake(t *testing.T) {
	w, p, _ := simple(t, setup{objects: []runtime.Object{brakeOf(map[string]string{"mode": "off"})}}, nil)
	w.eventually("it is seen", func() bool { return w.plugin.engine.control.Brake() != nil })

	w.tells(enforcing(1, func(s *wire.ControlState) { s.NamespaceModes = map[string]string{"default": wire.ModeEnforce} }), at(1))

	if _, status := w.cycle(p); !strings.Contains(status.Message(), "mode off") {
		t.Errorf("status %v", status)
	}
}

func TestAConfigMapOfAnotherNameIsNoBrake(t *testing.T) {
	other := brakeOf(map[string]string{"mode": "off"})
	other.Name = "makeway-policy"
	w, _, _ := simple(t, setup{objects: []runtime.Object{other}}, nil)
	configmaps := w.client.CoreV1().ConfigMaps("makeway-system")
	set := brakeOf(map[string]string{"mode": "off", "namespaces": "a"})
	if _, err := configmaps.Create(w.ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.eventually("the brake is seen", func() bool { return w.plugin.engine.control.Brake().Scope() == "a" })
}

func TestABrakeThatMayNotBeReadIsTold(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "makeway-brake", nil)
	w, _, _ := simple(t, setup{unlistable: forbidden}, nil)

	w.eventually("it is told", func() bool {
		return strings.Contains(w.plugin.engine.status().Trouble, "makeway-system/makeway-brake cannot be read")
	})
}
