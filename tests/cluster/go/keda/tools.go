//go:build tools

// Package tools names the commands that the tests of KEDA are built from, so that
// go.mod and go.sum pin (and Go verifies) everything they need.
package tools

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
	_ "github.com/kedacore/keda/v2/cmd/webhooks"
)
