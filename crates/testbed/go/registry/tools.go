//go:build tools

// Package tools pins the registry that tests of images pull from.
package tools

import _ "github.com/distribution/distribution/v3/cmd/registry"
