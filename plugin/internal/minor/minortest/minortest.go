// Package minortest is what tests need of package minor: what Kubernetes' own helpers for tests are called differs too.
package minortest
