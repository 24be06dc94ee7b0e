package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

// writeSBOM writes the bill of materials of a binary to a file beside it. It is a file and no referrer in the layout:
// what loads or copies an image from a layout leaves referrers behind, so that one would be lost unnoticed. The digest
// of the binary in it identifies the binary, and so the image, that it describes.
func writeSBOM(r release, binary string) (err error) {
	doc, err := newSBOM(r, binary)
	if err != nil {
		return err
	}
	f, err := os.Create(binary + ".spdx.json")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return spdxjson.Write(doc, f, spdxjson.Indent("  "))
}

// newSBOM lists what the linker has written into the binary: the modules that are in it, and no others.
func newSBOM(r release, binary string) (*spdx.Document, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(data))

	main := newPackage(info.Main.Path, r.version)
	main.PackageLicenseDeclared = license
	main.PrimaryPackagePurpose = "APPLICATION"
	main.PackageFileName = filepath.Base(binary)
	main.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: digest}}
	packages := []*spdx.Package{main, newPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		packages = append(packages, newPackage(linked(dep).Path, linked(dep).Version))
	}
	relationships := []*spdx.Relationship{relate("DOCUMENT", "DESCRIBES", main.PackageSPDXIdentifier)}
	for _, p := range packages[1:] {
		relationships = append(relationships, relate(main.PackageSPDXIdentifier, "DEPENDS_ON", p.PackageSPDXIdentifier))
	}
	doc := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      filepath.Base(binary) + " " + r.version,
		DocumentNamespace: source + "/spdx/" + r.version + "/" + digest,
		CreationInfo: &spdx.CreationInfo{
			Created:  r.created.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: name + "-hack-image"}},
		},
		Packages:      packages,
		Relationships: relationships,
	}
	return doc, spdxlib.ValidateDocument(doc)
}

// linked is the module whose code is in the binary.
func linked(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

func newPackage(path, version string) *spdx.Package {
	return &spdx.Package{
		PackageName:             path,
		PackageVersion:          version,
		PackageSPDXIdentifier:   common.ElementID("Package-" + notInID.ReplaceAllString(path+"-"+version, "-")),
		PackageDownloadLocation: "NOASSERTION",
		PackageLicenseConcluded: "NOASSERTION",
		PackageLicenseDeclared:  "NOASSERTION",
		PackageCopyrightText:    "NOASSERTION",
		PrimaryPackagePurpose:   "LIBRARY",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			// Scanners for vulnerabilities look packages up by this.
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
			Locator: "pkg:golang/" + path + "@" + version,
		}},
	}
}

func relate(a common.ElementID, relationship string, b common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: a}, Relationship: relationship,
		RefB: common.DocElementID{ElementRefID: b},
	}
}
