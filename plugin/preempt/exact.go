package preempt

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// victimKey is where the UID of the pod that is being evicted is in a context.
type victimKey struct{}

// exactHandle is a handle whose client deletes and patches the pod that was chosen, and no other of its name:
// DefaultPreemption names a victim alone. What is not asked for with a victim in the context is left as it is.
type exactHandle struct{ fwk.Handle }

// ClientSet implements fwk.Handle.
func (h *exactHandle) ClientSet() kubernetes.Interface { return exactClient{h.Handle.ClientSet()} }

type exactClient struct{ kubernetes.Interface }

func (c exactClient) CoreV1() corev1.CoreV1Interface { return exactCore{c.Interface.CoreV1()} }

type exactCore struct{ corev1.CoreV1Interface }

func (c exactCore) Pods(namespace string) corev1.PodInterface {
	return exactPods{c.CoreV1Interface.Pods(namespace)}
}

type exactPods struct{ corev1.PodInterface }

// Delete deletes a victim under the condition that it has the UID that was chosen; else the API server answers Conflict.
func (p exactPods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if uid, ok := ctx.Value(victimKey{}).(types.UID); ok {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	return p.PodInterface.Delete(ctx, name, options)
}

// Patch patches a victim under the same condition: the API server takes a UID in a patch as one.
func (p exactPods) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*v1.Pod, error) {
	if uid, ok := ctx.Value(victimKey{}).(types.UID); ok {
		patch := map[string]any{}
		if err := json.Unmarshal(data, &patch); err != nil {
			return nil, fmt.Errorf("patch of pod %s: %w", name, err)
		}
		metadata, _ := patch["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["uid"] = uid
		patch["metadata"] = metadata
		var err error
		if data, err = json.Marshal(patch); err != nil {
			return nil, fmt.Errorf("patch of pod %s: %w", name, err)
		}
	}
	return p.PodInterface.Patch(ctx, name, kind, data, options, subresources...)
}
