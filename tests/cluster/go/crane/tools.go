//go:build tools

// Package tools names the command the local cluster is built from, so that
// go.mod and go.sum pin (and Go verifies) everything it needs.
package tools

import _ "github.com/google/go-containerregistry/cmd/crane"
