//go:build tools

// Package tools pins the older kubectl that the tests speak through.
package tools

import _ "k8s.io/kubernetes/cmd/kubectl"
