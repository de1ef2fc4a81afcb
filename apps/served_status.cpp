#include "apps/served_status.h"

#include <sstream>

#include "apps/endpoints.h"
#include "base/plain/files.h"
#include "base/plain/number_text.h"
#include "base/plain/text.h"
#include "fed/store/audit_summary.h"
#include "flower/federation/fleet_fabric.h"
#include "flower/federation/serve.h"
#include "flower/http/http_client.h"
#include "report/table.h"

namespace evenkeel::apps {
namespace {

fs::path federation_of(const fs::path& run) { return run / "federation"; }

std::string mebibytes(std::optional<int64_t> bytes) {
  return bytes ? fixed(static_cast<double>(*bytes) / (1 << 20), 2) : "-";
}

/// Says what became of the last exchange of some work, or "none yet".
std::string outcome_text(const fed::AuditEvent* event) { return event ? escaped(event->outcome) : "none yet"; }

const fed::AuditEvent* last_of(const fed::AuditSummary& sum, int64_t client, fed::AuditWork work) {
  const auto known = sum.last.find(client);
  if (known == sum.last.end()) return nullptr;
  const auto event = known->second.find(work);
  return event == known->second.end() ? nullptr : &event->second;
}

/// Returns the table of training, with a row for each client.
report::Table training_table(const flower::Roster& roster, const fed::AuditSummary& sum) {
  report::Table table{
      .title = "training: the last exchange with each client",
      .head = {"client", "node", "budget", "examples", "round", "seconds", "MiB down", "MiB up", "outcome"}};
  for (const auto& [id, member] : roster.members()) {
    const auto* event = last_of(sum, id, fed::AuditWork::kTrain);
    table.add({std::to_string(id), escaped(member.name), fixed(member.budget, 3), std::to_string(member.examples),
               event ? std::to_string(event->round.value_or(0)) : "-",
               event ? fixed(event->seconds.value_or(0), 1) : "-", event ? mebibytes(event->bytes_down) : "-",
               event ? mebibytes(event->bytes_up) : "-", outcome_text(event)});
  }
  return table;
}

/// Returns the table of scores: a row for each client that was asked for one.
report::Table scoring_table(const fed::AuditSummary& sum) {
  report::Table table{.title = "scores: the last exchange with each client",
                      .head = {"client", "after round", "seconds", "MiB down", "MiB up", "outcome"}};
  for (const auto& [id, works] : sum.last)
    if (const auto* event = last_of(sum, id, fed::AuditWork::kScore))
      table.add({std::to_string(id), std::to_string(event->round.value_or(0)), fixed(event->seconds.value_or(0), 1),
                 mebibytes(event->bytes_down), mebibytes(event->bytes_up), outcome_text(event)});
  return table;
}

std::string traffic_line(const fed::AuditSummary& sum) {
  const auto part = [&](const char* title, fed::AuditWork work) {
    const auto traffic = sum.of(work);
    return concat(title, " ", mebibytes(traffic.bytes_down), " MiB down and ", mebibytes(traffic.bytes_up), " up in ",
                  traffic.replies + traffic.lost, " exchanges");
  };
  return concat("traffic of the whole run: ", part("training", fed::AuditWork::kTrain), ", ",
                part("scores", fed::AuditWork::kScore), "\n");
}

}  // namespace

bool is_served(const fs::path& run) { return path_exists(federation_of(run) / "members.json"); }

std::string clients_status(const fs::path& run) {
  const auto federation = federation_of(run);
  const flower::Roster roster(federation / "members.json");
  fed::AuditSummary sum;
  const auto found = fed::read_audit(federation / fed::kAuditFile, [&](const auto& line) { sum.add(line.event); });
  std::string text = concat(roster.members().size(), " clients have joined\n");
  text += report::text_of(training_table(roster, sum));
  if (const auto scores = scoring_table(sum); !scores.rows.empty()) text += report::text_of(scores);
  text += traffic_line(sum);
  if (found.fault) text += concat("what stands above ends before a bad line: ", found.fault->what(), "\n");
  return text;
}

std::string server_status(const ServerAddress& address) {
  const auto endpoint =
      server_of({.server = address.server, .ca = address.ca, .insecure = address.insecure}, "--server");
  const auto answer = flower::HttpClient(endpoint, 10, size_t{16} << 20).get("/metrics");
  EK_CHECK(answer.ok(), kIo, endpoint.text(),
           ": no figures: ", answer.status ? concat(answer.status, " ", answer.detail) : answer.detail);
  std::istringstream lines(answer.body);
  std::string text;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with('#')) text += escaped(line) + "\n";
  return text;
}

}  // namespace evenkeel::apps
