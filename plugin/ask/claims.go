package ask

import (
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// zoneLabels are the labels of volumes that VolumeZone compares with a node's.
var zoneLabels = []string{v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion}

// selectedNode is the annotation of a claim whose volume is being made for a node.
const selectedNode = "volume.kubernetes.io/selected-node"

// Claims tells which claims leave their pods the same nodes, as the scheduler's own informers have them.
type Claims struct {
	Claims  corelisters.PersistentVolumeClaimLister
	Volumes corelisters.PersistentVolumeLister
}

// Reach is a text that two claims share where they leave a pod the same nodes: both have no volume yet and are of one storage
// class and for one node or none, or their volumes have one node affinity and one zone. A claim that is not known, or that only one pod may use at a time,
// shares its own with no other. It holds a slash, which no name does.
func (c *Claims) Reach(namespace, name string) string {
	claim, err := c.Claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil || slices.Contains(claim.Spec.AccessModes, v1.ReadWriteOncePod) {
		return name
	}
	if claim.Spec.VolumeName == "" {
		class := claim.Annotations[v1.BetaStorageClassAnnotation]
		if class == "" && claim.Spec.StorageClassName != nil {
			class = *claim.Spec.StorageClassName
		}
		return "unbound/" + class + "/" + claim.Annotations[selectedNode]
	}
	volume, err := c.Volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return name
	}
	affinity, err := json.Marshal(volume.Spec.NodeAffinity)
	if err != nil {
		return name
	}
	reach := []string{"bound", string(affinity)}
	for _, label := range zoneLabels {
		reach = append(reach, volume.Labels[label])
	}
	return strings.Join(reach, "/")
}
