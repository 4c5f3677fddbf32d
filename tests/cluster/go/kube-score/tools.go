//go:build tools

// Package tools names the command the chart's tests are built from, so that
// go.mod and go.sum pin (and Go verifies) everything it needs.
package tools

import _ "github.com/zegl/kube-score/cmd/kube-score"
