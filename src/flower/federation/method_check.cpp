#include "flower/federation/method_check.h"

#include <algorithm>
#include <filesystem>

#include "base/plain/text.h"
#include "methods/described_method.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kDigest = 64;  // characters

/// Returns FILE.py:CLASS without the folder, which is not told to the server.
std::string class_text(const methods::MethodDescription& own) {
  return concat(std::filesystem::path(own.file).filename().string(), ":", own.class_name);
}

}  // namespace

void require_same_method(const methods::MethodDigests& server) {
  const auto& all = methods::methods();
  const auto known = std::any_of(all.begin(), all.end(), [&](const auto& entry) { return entry.name == server.name; });
  if (!known) return;
  const auto& entry = methods::find_method(server.name);
  require_same_kind(server, entry);
  const auto own = methods::digests_of(entry);
  EK_CHECK(own.source == server.source, kConfig, "method ", own.name, ": the server's source has sha256 ",
           shown(server.source, kDigest), ", this node's (", class_text(*entry.described), ") ", own.source,
           "; both sides need the same file");
  EK_CHECK(own.description == server.description, kConfig, "method ", own.name,
           ": the server's keys and settings have sha256 ", shown(server.description, kDigest), ", this node's (",
           class_text(*entry.described), ") ", own.description,
           ", though the source is the same: both sides need the same packages and environment");
}

void require_same_kind(const methods::MethodDigests& server, const methods::MethodEntry& entry) {
  const bool is_described = entry.described != nullptr;
  EK_CHECK(is_described || server.name.empty(), kConfig, "method ", shown(server.name),
           " is a class in Python at the server, and compiled into this node's program");
  EK_CHECK(!is_described || server.name == entry.name, kConfig, "method ", entry.name,
           " is a class in Python at this node (", class_text(*entry.described),
           "), and compiled into the server's program");
}

}  // namespace evenkeel::flower
