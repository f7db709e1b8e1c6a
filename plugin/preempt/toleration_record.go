package preempt

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/rules"
)

// storedTolerations is the record of tolerations as it was last read and could be used.
type storedTolerations struct {
	version string // the ConfigMap's
	record  rules.TolerationRecord
}

// tolerationRecord is what is on record of PriorityClasses that are gone; nil while it has never been read.
func (c *control) tolerationRecord() rules.TolerationRecord {
	if stored := c.tolerations.Load(); stored != nil {
		return stored.record
	}
	return nil
}

// readTolerations reads the record of tolerations, which the planner keeps, for the fallback. Where it is missing, cannot
// be read or cannot be decoded, the last one stands.
func (e *engine) readTolerations(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	namespace := e.control.ownNamespace
	found, err := e.handle.ClientSet().CoreV1().ConfigMaps(namespace).Get(call, rules.TolerationRecordName, metav1.GetOptions{})
	read := &storedTolerations{}
	if err == nil {
		read.version = found.ResourceVersion
		read.record, err = rules.ParseTolerationRecord(found.Data)
	}
	if err != nil {
		if !e.control.tolerationsTold.Swap(true) {
			klog.FromContext(ctx).Info("toleration_record_unusable", "namespace", namespace, "configmap", rules.TolerationRecordName,
				"reason", err.Error(), "effect", "MakeWayFallback goes by the record that was read before, and without one evicts no pod whose PriorityClass is gone")
		}
		return
	}
	e.control.tolerationsTold.Store(false)
	if before := e.control.tolerations.Swap(read); before != nil && before.version != read.version {
		e.retry.policyChanged()
	}
}
