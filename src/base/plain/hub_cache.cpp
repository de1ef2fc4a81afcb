#include "base/plain/hub_cache.h"

#include <algorithm>
#include <cstdlib>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/hub_name.h"

namespace evenkeel {
namespace {

// Longest name of a revision, as on the hub, and largest file in refs/, in bytes.
constexpr size_t kLongestRevision = 96, kLongestRef = 4096;

struct HubName {
  std::string name, revision;
};

/// Branches with a slash in their name are not found.
bool is_revision(std::string_view text) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= kLongestRevision && text[0] != '.' &&
         std::all_of(text.begin(), text.end(), is_allowed);
}

std::optional<HubName> parse(std::string_view text) {
  const auto at = text.find('@');
  const auto name = text.substr(0, at);
  const auto revision = at == std::string_view::npos ? "main" : text.substr(at + 1);
  if (name.find('/') == std::string_view::npos || !is_hub_name(name) || !is_revision(revision)) return std::nullopt;
  return HubName{std::string(name), std::string(revision)};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

/// Returns the commit of a revision: the content of refs/REVISION, or the revision itself.
std::string commit_of(const fs::path& repository, const std::string& revision) {
  const auto ref = repository / "refs" / revision;
  if (!is_file(ref)) return revision;
  auto commit = read_file(ref, kLongestRef);
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) commit.pop_back();
  return is_revision(commit) ? commit : std::string();
}

}  // namespace

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (auto folder = variable(name); !folder.empty()) return folder;
  if (auto home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  const auto caches = variable("XDG_CACHE_HOME");
  return (caches.empty() ? fs::path(variable("HOME")) / ".cache" : fs::path(caches)) / "huggingface" / "hub";
}

std::optional<fs::path> cached_snapshot(HubKind kind, std::string_view text) {
  const auto name = parse(text);
  if (!name) return std::nullopt;
  auto folder = concat(kind == HubKind::kModel ? "models--" : "datasets--", name->name);
  folder.replace(folder.find('/'), 1, "--");
  const auto repository = hub_cache() / folder;
  if (!is_folder(repository)) return std::nullopt;
  const auto commit = commit_of(repository, name->revision);
  const auto snapshot = repository / "snapshots" / commit;
  return !commit.empty() && is_folder(snapshot) ? std::optional(snapshot) : std::nullopt;
}

fs::path cached_file(const std::string& address, std::string_view key) {
  constexpr std::string_view kDatasets = "datasets/";
  std::string_view rest = std::string_view(address).substr(kHubAddress.size());
  const auto kind = rest.starts_with(kDatasets) ? HubKind::kDataset : HubKind::kModel;
  if (kind == HubKind::kDataset) rest.remove_prefix(kDatasets.size());
  const auto end = rest.find('/', std::min(rest.size(), rest.find('/') + 1));
  const auto name = rest.substr(0, end);
  const auto snapshot = cached_snapshot(kind, name);
  const auto parsed = parse(name);
  EK_CHECK(snapshot.has_value(), kConfig, key, " is ", address, ", which the hub cache ", hub_cache().string(),
           " does not have; to fetch it: hf download ", kind == HubKind::kDataset ? "--repo-type dataset " : "",
           parsed ? parsed->name : "ORG/NAME");
  return end == std::string_view::npos ? *snapshot : *snapshot / rest.substr(end + 1);
}

}  // namespace evenkeel
