//go:build tools

// Package tools pins the kwok that the testbed runs.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
