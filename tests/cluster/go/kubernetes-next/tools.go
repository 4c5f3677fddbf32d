//go:build tools

// Package tools names the Kubernetes commands of the next minor release that tests/integration/next starts,
// so that go.mod and go.sum pin (and Go verifies) everything they need.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
