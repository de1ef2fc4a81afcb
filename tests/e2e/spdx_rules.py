"""Checks a document against the rules of SPDX 2.3 for JSON that concern the fields which this project writes."""

import re

IDENTIFIER = re.compile(r"SPDXRef-[A-Za-z0-9.-]+")
DIGITS = {"SHA1": 40, "SHA256": 64}
EXPRESSION = re.compile(r"NOASSERTION|[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
RELATIONS = {"DESCRIBES", "CONTAINS", "DYNAMIC_LINK", "STATIC_LINK", "GENERATED_FROM"}


def check_head(document):
    assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0" and document["SPDXID"] == "SPDXRef-DOCUMENT"
    assert document["name"] and re.fullmatch(r"https://[^#\s]+", document["documentNamespace"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"])
    creators = document["creationInfo"]["creators"]
    assert creators and all(re.match(r"(Tool|Person|Organization): \S", one) for one in creators)


def check_checksums(element):
    found = {one["algorithm"]: one["checksumValue"] for one in element["checksums"]}
    assert "SHA1" in found, "a file needs a SHA-1"
    assert all(re.fullmatch(f"[0-9a-f]{{{DIGITS[name]}}}", value) for name, value in found.items())


def check_package(package):
    assert package["name"] and package["downloadLocation"] and package["copyrightText"]
    for key in ("licenseConcluded", "licenseDeclared"):
        assert EXPRESSION.fullmatch(package[key]), package
    if package["filesAnalyzed"]:
        assert re.fullmatch(r"[0-9a-f]{40}", package["packageVerificationCode"]["packageVerificationCodeValue"])
        assert package["hasFiles"] and package["licenseInfoFromFiles"]
    else:
        assert "packageVerificationCode" not in package and "hasFiles" not in package and "licenseInfoFromFiles" not in package
    for reference in package.get("externalRefs", []):
        assert reference["referenceCategory"] == "PACKAGE-MANAGER" and reference["referenceType"] == "purl"
        assert re.fullmatch(r"pkg:(deb/debian|pypi)/[a-z0-9.+-]+@[^@\s]+", reference["referenceLocator"]), reference


def check_spdx(document):
    check_head(document)
    packages, files = document["packages"], document["files"]
    ids = ["SPDXRef-DOCUMENT", *(element["SPDXID"] for element in [*packages, *files])]
    assert all(map(IDENTIFIER.fullmatch, ids)) and len(set(ids)) == len(ids)
    for package in packages:
        check_package(package)
        assert set(package.get("hasFiles", [])) <= set(ids)
    for file in files:
        assert file["fileName"].startswith("./") and file["copyrightText"] and file["licenseInfoInFiles"]
        check_checksums(file)
    assert len({file["fileName"] for file in files}) == len(files)
    for relation in document["relationships"]:
        assert relation["relationshipType"] in RELATIONS
        assert relation["spdxElementId"] in ids and relation["relatedSpdxElement"] in ids
    described = [one["relatedSpdxElement"] for one in document["relationships"] if one["relationshipType"] == "DESCRIBES"]
    assert described == document["documentDescribes"] and len(described) == 1
