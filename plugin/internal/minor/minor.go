// Package minor is all that differs between the minor versions of Kubernetes that the plugin is built against. It is
// built for one of them at a time: files of the others are left out by the build tags kube136 and kube135. No other
// package names a version, but for tests.
package minor
