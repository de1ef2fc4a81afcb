#include "apps/audit_pair.h"

#include <set>
#include <vector>

#include "base/plain/files.h"
#include "base/plain/text.h"
#include "fed/store/audit.h"

namespace evenkeel::apps {
namespace {

/// A head of the other side's log that a line notes.
struct NotedHead {
  std::string place, run, key, head;
};

/// What a log says about itself and the other side.
struct Side {
  fs::path file;
  std::set<std::string> digests;  // of its lines
  std::vector<NotedHead> noted;
  std::set<std::string> runs, keys;  // a server's runs; a node's own keys
  bool is_server = false;

  explicit Side(const fs::path& log) : file(log) {
    const auto found = fed::read_audit(log, [this](const fed::AuditLine& line) { add(line); });
    if (found.fault) throw *found.fault;
  }

 private:
  void add(const fed::AuditLine& line) {
    const auto& event = line.event;
    digests.insert(line.digest);
    if (!event.peer.empty()) noted.push_back({line.place, event.run, event.key, event.peer});
    const bool starts = event.kind == fed::AuditKind::kStart || event.kind == fed::AuditKind::kResume;
    if (starts && !event.run.empty()) is_server = true, runs.insert(event.run);
    if (starts && event.run.empty()) keys.insert(event.key);
  }
};

/// Returns the number of heads in `noted` for which `counts` is true. \throws kCheckpoint for one that `other` lacks
template <typename Counts>
int64_t found_heads(const Side& side, const Side& other, const Counts& counts) {
  int64_t found = 0;
  for (const auto& one : side.noted) {
    if (!counts(one)) continue;
    EK_CHECK(other.digests.contains(one.head), kCheckpoint, one.place, ": the noted head ", shown(one.head, 70),
             " is no line of ", other.file.string(), ", which was cut off or written anew");
    ++found;
  }
  return found;
}

}  // namespace

std::string compared_audits(const fs::path& one, const fs::path& other) {
  const Side first(one), second(other);
  EK_CHECK(first.is_server != second.is_server, kConfig, "--with: one of both logs has to be a server's and one a ",
           "node's: ", one.string(), ", ", other.string());
  const auto& server = first.is_server ? first : second;
  const auto& node = first.is_server ? second : first;
  const auto by_node = found_heads(node, server, [&](const auto& head) { return server.runs.contains(head.run); });
  const auto by_server = found_heads(server, node, [&](const auto& head) { return node.keys.contains(head.key); });
  return concat("both logs confirm each other: the node noted ", by_node, " heads of the server's log, the server ",
                by_server, " of the node's\n");
}

}  // namespace evenkeel::apps
