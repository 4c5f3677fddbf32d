//go:build tools

// Package tools names the Flux controllers, so that `go mod tidy` keeps what they need.
package tools

import (
	_ "github.com/fluxcd/helm-controller"
	_ "github.com/fluxcd/kustomize-controller"
	_ "github.com/fluxcd/source-controller"
)
