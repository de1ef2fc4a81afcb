#include "apps/audit_status.h"

#include <algorithm>
#include <map>

#include "base/plain/files.h"
#include "base/plain/hex.h"
#include "base/plain/number_text.h"
#include "base/plain/text.h"
#include "fed/store/audit_summary.h"
#include "report/table.h"

namespace evenkeel::apps {
namespace {

/// What the lines of a log say.
struct Content {
  fed::AuditSummary summary;
  std::map<std::string, int64_t> kinds;  // number of lines by kind
  std::map<int64_t, std::map<fed::AuditWork, fed::WorkTraffic>> clients;
  std::string first, last;                   // times
  std::map<std::string, std::string> heads;  // lines of digests that were asked for
  int64_t lines = 0;

  void add(const fed::AuditLine& line) {
    ++lines;
    if (first.empty()) first = line.time;
    last = line.time;
    ++kinds[std::string(config::name_of(line.event.kind))];
    if (!line.event.client) return;
    fed::AuditSummary one;
    one.add(line.event);
    for (const auto& [work, traffic] : one.traffic) {
      auto& sum = clients[*line.event.client][work];
      sum.replies += traffic.replies, sum.lost += traffic.lost;
      sum.bytes_down += traffic.bytes_down, sum.bytes_up += traffic.bytes_up;
    }
    summary.add(line.event);
  }
};

std::string mebibytes(int64_t bytes) { return fixed(static_cast<double>(bytes) / (1 << 20), 2); }

report::Table clients_table(const Content& content) {
  report::Table table{.title = "exchanges by client and work; MiB of headers and payloads",
                      .head = {"client", "work", "replies", "lost", "MiB down", "MiB up"},
                      .keys = 2};
  for (const auto& [client, works] : content.clients)
    for (const auto& [work, sum] : works)
      table.add({std::to_string(client), std::string(config::name_of(work)), std::to_string(sum.replies),
                 std::to_string(sum.lost), mebibytes(sum.bytes_down), mebibytes(sum.bytes_up)});
  return table;
}

std::string kinds_text(const Content& content) {
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : content.kinds) kinds.push_back(concat(kind, " ", count));
  return join(kinds);
}

std::string end_text(const ChainCheck& found) {
  std::string text;
  if (found.torn > 0)
    text += concat(found.torn, found.torn == 1 ? " line was" : " lines were",
                   " left incomplete by a killed process or a full disk, and marked as torn\n");
  if (found.torn_end > 0)
    text += concat("the last line is incomplete (", found.torn_end,
                   " bytes): it is being written, or a process was killed; the next line will mark it\n");
  return text;
}

}  // namespace

fs::path audit_file(const fs::path& path) {
  for (const auto& file : {path / "federation" / fed::kAuditFile, path / fed::kAuditFile})
    if (is_folder(path) && is_file(file)) return file;
  EK_CHECK(is_file(path), kIo, path.string(), ": no audit log is here: expected a server's run folder with federation/",
           fed::kAuditFile, ", a node's memory folder with ", fed::kAuditFile, ", or such a file");
  return path;
}

std::string audit_status(const fs::path& file, const std::vector<std::string>& heads) {
  for (const auto& head : heads)
    EK_CHECK(is_hex(head, 64), kConfig, "--head is ", shown(head), ", allowed: 64 of the digits 0 to 9 and a to f");
  Content content;
  const auto found = fed::read_audit(file, [&](const fed::AuditLine& line) {
    content.add(line);
    if (std::find(heads.begin(), heads.end(), line.digest) != heads.end())
      content.heads[line.digest] = concat("number ", content.lines, ", of ", line.time);
  });
  if (found.fault) throw *found.fault;
  std::string text = concat(file.string(), ": ", found.lines, " lines, each of which goes on from the one before\n");
  if (found.lines > 0) text += concat("from ", escaped(content.first), " to ", escaped(content.last), "\n");
  if (found.lines > 0) text += kinds_text(content) + "\n";
  text += end_text(found);
  if (!content.clients.empty()) text += report::text_of(clients_table(content));
  for (const auto& head : heads) {
    EK_CHECK(content.heads.contains(head), kCheckpoint, file.string(), ": no line has the digest ", shown(head, 80),
             ": lines were cut off or written anew after it was noted");
    text += concat(head, " is the digest of line ", content.heads.at(head), "\n");
  }
  return text + concat("head: ", found.head, "\n");
}

}  // namespace evenkeel::apps
