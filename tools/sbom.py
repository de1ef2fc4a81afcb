#!/usr/bin/env python3
"""Lists what a wheel or an image is made of: an SBOM in SPDX 2.3 (JSON), with version, licence and checksums.

tools/wheel puts one into each wheel and beside it. Of an image, from its tree and the list of its Debian packages:

    tools/sbom.py --prefix /opt/evenkeel --dpkg-status /var/lib/dpkg/status --version 0.1.0 --torch 2.13.0 --out evenkeel.spdx.json
"""

import argparse
import hashlib
import json
import pathlib
import re
import uuid

CREATED = "2020-01-01T00:00:00Z"  # as the times in the wheel: the same files give the same document
NAMESPACE = uuid.UUID("8a3c9c5e-6d0b-5b4f-9f5c-2f7a1f0a4d61")  # of the names of documents of this project
# Licences of what is packed or compiled in, by the start of the name of the Debian package. SPDX identifiers, read from
# /usr/share/doc/*/copyright, which has the texts; in a wheel they are in dist-info/licenses.
LICENCES = {
    "libbrotli": "MIT", "libcli11": "BSD-3-Clause", "libcpp-httplib": "MIT", "libfmt": "MIT", "libgomp": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libpcre2": "BSD-3-Clause", "libprotobuf": "BSD-3-Clause", "libspdlog": "MIT", "libssl": "Apache-2.0", "libtomlplusplus": "MIT",
    "libutf8proc": "MIT AND Unicode-DFS-2015", "nlohmann-json": "MIT", "zlib1g": "Zlib",
}


class Component:
    """A package of others: its files as they are in the product, and how it came in."""

    def __init__(self, name, version, licence, purl=None, files=(), link="DYNAMIC_LINK", source=None):
        self.name, self.version, self.licence, self.purl = name, version, licence, purl
        self.files, self.link, self.source = list(files), link, source


def licence_of(package):
    """The licence of a Debian package, or NOASSERTION where nobody has read it."""
    return next((licence for start, licence in LICENCES.items() if package.startswith(start)), "NOASSERTION")


def debian_component(package, version, architecture, **more):
    purl = f"pkg:deb/debian/{package}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}&distro=debian-12"
    return Component(package, version, licence_of(package), purl, **more)


def identifier(kind, text):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def checksums(data):
    """SPDX asks for SHA-1 of every file; SHA-256 is what to check."""
    return [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(data, usedforsecurity=False).hexdigest()},
            {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()}]


def verification_code(files):
    """SPDX 2.3, 7.9: SHA-1 over the sorted SHA-1 of all files."""
    digests = sorted(file["checksums"][0]["checksumValue"] for file in files)
    return hashlib.sha1("".join(digests).encode(), usedforsecurity=False).hexdigest()


def file_entries(files):
    ids, entries = {}, []
    for name, data in sorted(files.items()):
        ids[name] = identifier("File", f"{len(ids)}-{pathlib.PurePosixPath(name).name}")
        entries.append({"SPDXID": ids[name], "fileName": f"./{name}", "checksums": checksums(data), "licenseConcluded": "NOASSERTION",
                        "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"})
    return ids, entries


def package_entry(component, **more):
    entry = {"SPDXID": identifier("Package", component.name), "name": component.name, "downloadLocation": "NOASSERTION",
             "filesAnalyzed": False, "licenseConcluded": component.licence, "licenseDeclared": component.licence,
             "copyrightText": "NOASSERTION"}
    if component.version:
        entry["versionInfo"] = component.version
    if component.source:
        entry["sourceInfo"] = component.source
    if component.purl:
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.purl}]
    return {**entry, **more}


def relation(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def document(product, files, components):
    """The SBOM as text.
    product: Component of the project; files: {name: bytes} of the wheel or image; components: what is in it of others."""
    ids, entries = file_entries(files)
    main = package_entry(product, filesAnalyzed=True, licenseInfoFromFiles=["NOASSERTION"], hasFiles=list(ids.values()),
                         packageVerificationCode={"packageVerificationCodeValue": verification_code(entries)},
                         primaryPackagePurpose="APPLICATION")
    relations = [relation("SPDXRef-DOCUMENT", "DESCRIBES", main["SPDXID"])]
    packages = [main]
    for component in sorted(components, key=lambda one: one.name):
        entry = package_entry(component)
        packages.append(entry)
        relations.append(relation(main["SPDXID"], component.link, entry["SPDXID"]))
        relations += [relation(ids[name], "GENERATED_FROM", entry["SPDXID"]) for name in sorted(component.files)]
    name = f"{product.name}-{product.version}"
    content = {"packages": packages, "files": entries, "relationships": relations}
    unique = uuid.uuid5(NAMESPACE, json.dumps(content, sort_keys=True))
    head = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
            "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{unique}",
            "creationInfo": {"created": CREATED, "creators": [f"Tool: evenkeel-sbom-{product.version}"]},
            "documentDescribes": [main["SPDXID"]]}
    return json.dumps({**head, **content}, indent=1) + "\n"


# An image ---------------------------------------------------------------------------------------------------------------------------

def installed_packages(status):
    """Components of the packages in a dpkg status file."""
    components = []
    for paragraph in re.split(r"\n\s*\n", status):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            components.append(debian_component(fields["Package"], fields["Version"], fields["Architecture"], link="CONTAINS"))
    return components


def read_tree(prefix):
    return {path.relative_to(prefix).as_posix(): path.read_bytes() for path in sorted(prefix.rglob("*")) if path.is_file() and not path.is_symlink()}


def image_document(prefix, status, version, torch):
    files = read_tree(prefix)
    libtorch = [name for name in files if re.search(r"/lib(torch|c10)[^/]*\.so", name)]
    components = [*installed_packages(status), Component("torch", torch, "BSD-3-Clause", f"pkg:pypi/torch@{torch}", libtorch)]
    return document(Component("evenkeel-image", version, "Apache-2.0"), files, components)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=pathlib.Path, required=True, help="the tree that `cmake --install` made")
    parser.add_argument("--dpkg-status", type=pathlib.Path, required=True, help="/var/lib/dpkg/status of the image")
    parser.add_argument("--version", required=True, help="of evenkeel")
    parser.add_argument("--torch", required=True, help="version of torch")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    flags = parser.parse_args()
    flags.out.write_text(image_document(flags.prefix, flags.dpkg_status.read_text(), flags.version, flags.torch))


if __name__ == "__main__":
    main()
