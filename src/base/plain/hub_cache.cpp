#include "base/plain/hub_cache.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/hex.h"
#include "base/plain/hub_name.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

// Longest name of a revision, as git hosts allow it, and largest file in refs/, in bytes.
constexpr size_t kLongestRevision = 255, kLongestRef = 4096;

/// A repository "org/name" and its revision.
struct HubName {
  std::string name, revision = "main";
};

/// The parts of an address.
struct HubAddress {
  HubKind kind = HubKind::kModel;
  HubName at;
  std::string path{};  // inside the snapshot; empty: the snapshot
};

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Returns true for text that git allows as the name of a branch or tag. As a path it stays in its folder.
bool is_revision(std::string_view text) {
  const auto is_forbidden = [](unsigned char c) {
    return c <= ' ' || c == 127 || std::string_view("~^:?*[\\").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (text.empty() || text.size() > kLongestRevision || std::any_of(text.begin(), text.end(), is_forbidden))
    return false;
  const auto padded = concat("/", text, "/");
  return padded.find("//") == padded.npos && padded.find("/.") == padded.npos && padded.find("..") == padded.npos;
}

bool is_commit(std::string_view text) { return is_hex(text, 40); }

bool is_repository(std::string_view name) { return name.find('/') != name.npos && is_hub_name(name); }

std::optional<HubName> parse_name(std::string_view text) {
  const auto at = text.find('@');
  HubName name{.name = std::string(text.substr(0, at))};
  if (at != text.npos) name.revision = text.substr(at + 1);
  return is_repository(name.name) && is_revision(name.revision) ? std::optional(name) : std::nullopt;
}

/// Returns the length of a revision at the start of "REVISION[/PATH]". It ends at the first slash, except for
/// "refs/pr/NUMBER" and "refs/convert/NAME".
size_t revision_length(std::string_view text) {
  const auto matched = [&](std::string_view prefix, const auto& belongs) {
    if (!text.starts_with(prefix)) return size_t{0};
    const auto end = std::find_if_not(text.begin() + std::ssize(prefix), text.end(), belongs);
    const auto length = static_cast<size_t>(end - text.begin());
    return length > prefix.size() ? length : 0;
  };
  const auto in_name = [](char c) { return is_word_character(c) || c == '.' || c == '-' || (c & 0x80) != 0; };
  if (const auto n = matched("refs/pr/", [](char c) { return c >= '0' && c <= '9'; })) return n;
  if (const auto n = matched("refs/convert/", in_name)) return n;
  return std::min(text.find('/'), text.size());
}

/// Replaces "%2F" by "/", and so on.
std::string decode_percent(std::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto code =
        text[at] == '%' && at + 3 <= text.size() ? parse_number<unsigned>(text.substr(at + 1, 2), 16) : std::nullopt;
    decoded += code ? static_cast<char>(*code) : text[at];
    if (code) at += 2;
  }
  return decoded;
}

/// Removes the type at the start of an address. \return nothing for a type that is neither a model nor a data set
std::optional<HubKind> take_kind(std::string_view& text) {
  const auto first = text.substr(0, text.find('/'));
  for (const auto* other : {"spaces", "kernels", "buckets", "model", "dataset", "space", "kernel", "bucket"})
    if (first == other) return std::nullopt;
  if (first == "models" || first == "datasets") text.remove_prefix(std::min(text.size(), first.size() + 1));
  return first == "datasets" ? HubKind::kDataset : HubKind::kModel;
}

/// Splits "org/name[@REVISION][/PATH]". An @ after the second slash belongs to the path.
HubAddress split_address(HubKind kind, std::string_view text) {
  const auto slash = text.find('/', std::min(text.size(), text.find('/') + 1));
  const auto end = std::min({text.find('@'), slash, text.size()});
  HubAddress address{.kind = kind, .at = {.name = std::string(text.substr(0, end))}};
  auto rest = text.substr(end);
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    const auto length = revision_length(rest);
    address.at.revision = decode_percent(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  address.path = rest.substr(rest.starts_with('/') ? 1 : 0);
  return address;
}

/// Reads what follows kHubAddress as huggingface_hub's parse_hf_uri does. \return nothing if it is malformed
std::optional<HubAddress> parse_address(std::string_view text) {
  const auto kind = take_kind(text);
  while (text.starts_with('/')) text.remove_prefix(1);
  while (text.ends_with('/')) text.remove_suffix(1);
  if (!kind) return std::nullopt;
  auto address = split_address(*kind, text);
  const bool empty_segment = address.path.starts_with('/') || address.path.find("//") != std::string::npos;
  const bool valid = is_repository(address.at.name) && is_revision(address.at.revision) && !empty_segment;
  return valid ? std::optional(std::move(address)) : std::nullopt;
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// Returns the home folder of a user, of the current one for an empty name; nothing if it is unknown.
std::optional<std::string> home_folder(const std::string& user) {
  if (auto home = variable("HOME"); user.empty() && home) return home;
  std::array<char, 16384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (user.empty())
    ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found);
  else
    ::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? std::nullopt : std::optional<std::string>(found->pw_dir);
}

/// Replaces "~" or "~user" at the start by the home folder, as Python's os.path.expanduser.
std::string expand_user(const std::string& path) {
  if (!path.starts_with('~')) return path;
  const auto end = std::min(path.find('/'), path.size());
  auto home = home_folder(path.substr(1, end - 1));
  if (!home) return path;
  while (home->ends_with('/')) home->pop_back();
  auto expanded = *home + path.substr(end);
  return expanded.empty() ? "/" : expanded;
}

/// Returns the length of "$NAME" or "${NAME}" at the start of `text`; 0: there is none.
size_t variable_length(std::string_view text) {
  if (!text.starts_with('$')) return 0;
  if (text.starts_with("${")) return text.find('}') == text.npos ? 0 : text.find('}') + 1;
  const auto end = std::find_if_not(text.begin() + 1, text.end(), is_word_character);
  return end == text.begin() + 1 ? 0 : static_cast<size_t>(end - text.begin());
}

/// Replaces variables by their values, as Python's os.path.expandvars. Unknown ones stay.
std::string expand_variables(std::string_view path) {
  std::string expanded;
  while (!path.empty()) {
    const auto length = std::max(variable_length(path), size_t{1});
    const bool braces = path.starts_with("${") && length > 1;
    const std::string name(length > 1 ? path.substr(braces ? 2 : 1, length - (braces ? 3 : 1)) : std::string_view());
    expanded += variable(name.c_str()).value_or(std::string(path.substr(0, length)));
    path.remove_prefix(length);
  }
  return expanded;
}

std::string expand(const std::string& path) { return expand_variables(expand_user(path)); }

/// Returns the commit of a revision: itself, or the content of refs/REVISION. \return empty if it is neither
std::string commit_of(const fs::path& repository, const std::string& revision) {
  if (is_commit(revision)) return revision;
  const auto ref = repository / "refs" / revision;
  auto commit = is_file(ref) ? read_file(ref, kLongestRef) : std::string();
  return is_revision(commit) && commit.find('/') == commit.npos ? commit : std::string();
}

std::optional<fs::path> find_snapshot(HubKind kind, const HubName& at) {
  auto folder = concat(kind == HubKind::kModel ? "models--" : "datasets--", at.name);
  folder.replace(folder.find('/'), 1, "--");
  const auto repository = hub_cache() / folder;
  if (!is_folder(repository)) return std::nullopt;
  const auto commit = commit_of(repository, at.revision);
  const auto snapshot = repository / "snapshots" / commit;
  return !commit.empty() && is_folder(snapshot) ? std::optional(snapshot) : std::nullopt;
}

/// Returns the arguments of `hf download` for a repository.
std::string download_arguments(const HubAddress& address) {
  const auto& [name, revision] = address.at;
  return concat(address.kind == HubKind::kDataset ? "--repo-type dataset " : "",
                revision == "main" ? "" : concat("--revision ", revision, " "), name);
}

/// Returns the folder of a snapshot. \param text  as it was given \throws kConfig when the cache does not have it
fs::path snapshot_of(const HubAddress& address, std::string_view text, std::string_view key) {
  const auto snapshot = find_snapshot(address.kind, address.at);
  EK_CHECK(snapshot.has_value(), kConfig, key, " is ", text,
           text.starts_with(kHubAddress) ? ", which the hub cache " : ", which is no folder here, and the hub cache ",
           hub_cache().string(), " does not have", text.starts_with(kHubAddress) ? "" : " it",
           "; to fetch it: hf download ", download_arguments(address));
  return *snapshot;
}

/// Parses an address. \throws kConfig when it is malformed
HubAddress require_address(const std::string& address, std::string_view key) {
  EK_CHECK(address.starts_with(kHubAddress), kInternal, key, " is ", address, ", which does not begin with ",
           kHubAddress);
  auto parsed = parse_address(std::string_view(address).substr(kHubAddress.size()));
  EK_CHECK(parsed.has_value(), kConfig, key, " is ", address,
           ", allowed: hf://ORG/NAME[@REVISION][/PATH] or hf://datasets/ORG/NAME[@REVISION][/PATH]");
  return std::move(*parsed);
}

}  // namespace

fs::path hub_cache() {
  const auto caches = variable("XDG_CACHE_HOME").value_or(fs::path(expand_user("~")) / ".cache");
  const auto home = expand(variable("HF_HOME").value_or(fs::path(caches) / "huggingface"));
  const auto older = variable("HUGGINGFACE_HUB_CACHE").value_or(fs::path(home) / "hub");
  // snapshot_download() expands the user once more.
  return expand_user(expand(variable("HF_HUB_CACHE").value_or(older)));
}

std::optional<fs::path> cached_snapshot(HubKind kind, std::string_view text) {
  const auto name = parse_name(text);
  return name ? find_snapshot(kind, *name) : std::nullopt;
}

std::optional<fs::path> found_snapshot(HubKind kind, std::string_view text, std::string_view key) {
  const auto name = parse_name(text);
  return name ? std::optional(snapshot_of({.kind = kind, .at = *name}, text, key)) : std::nullopt;
}

fs::path cached_file(const std::string& address, std::string_view key) {
  const auto parsed = require_address(address, key);
  const auto snapshot = snapshot_of(parsed, address, key);
  return parsed.path.empty() ? snapshot : snapshot / parsed.path;
}

std::optional<std::string> pinned_address(const std::string& text, std::string_view key) {
  const auto name = parse_name(text);
  if (!name && !text.starts_with(kHubAddress)) return std::nullopt;
  const auto address = name ? HubAddress{.at = *name} : require_address(text, key);
  const auto commit = snapshot_of(address, text, key).filename().string();
  if (!is_commit(commit)) return std::nullopt;
  return concat(kHubAddress, address.kind == HubKind::kDataset ? "datasets/" : "", address.at.name, '@', commit,
                address.path.empty() ? "" : "/", address.path);
}

}  // namespace evenkeel
