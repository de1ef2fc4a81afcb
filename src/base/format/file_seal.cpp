#include "base/format/file_seal.h"

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel {

FileSeal FileSeal::of(const fs::path& file) {
  const auto before = FileIdentity::of(file);
  return {file.filename().string(), before.bytes, read_fingerprint(file), before};
}

FileSeal FileSeal::of(const fs::path& file, std::string_view bytes) {
  const auto before = FileIdentity::of(file);
  return {file.filename().string(), static_cast<int64_t>(bytes.size()), fingerprint_of_bytes(bytes), before};
}

void FileSeal::check(const fs::path& folder) const {
  const auto file = folder / name;
  if (hashed && *hashed == FileIdentity::of(file)) return;
  EK_CHECK(FileIdentity::of(file).bytes == bytes && read_fingerprint(file) == fingerprint, kCheckpoint, file.string(),
           ": damaged: its ", evenkeel::file_size(file), " bytes are not the ", bytes, " that were written");
}

OrderedJson to_json(const std::vector<FileSeal>& seals) {
  OrderedJson json = OrderedJson::object();
  for (const auto& seal : seals)
    json[seal.name] = {{"bytes", seal.bytes}, {std::string(seal.fingerprint.kind), seal.fingerprint.digest}};
  return json;
}

void from_json(const JsonView& json, std::vector<FileSeal>& seals) {
  for (const auto& seal : json.members()) {
    const auto kind = seal.find(kTreeDigest) ? kTreeDigest : kWholeDigest;
    seals.push_back({seal.key(), seal.at("bytes").integer(0), {kind, seal.at(kind).string()}});
  }
}

const FileSeal* find_seal(const std::vector<FileSeal>& seals, std::string_view name) {
  for (const auto& seal : seals)
    if (seal.name == name) return &seal;
  return nullptr;
}

}  // namespace evenkeel
