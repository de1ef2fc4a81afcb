#include "apps/served_status.h"

#include <sstream>

#include "apps/endpoints.h"
#include "base/plain/files.h"
#include "base/plain/number_text.h"
#include "base/plain/sealed.h"
#include "flower/federation/fleet_fabric.h"
#include "flower/federation/serve.h"
#include "flower/http/http_client.h"
#include "report/table.h"

namespace evenkeel::apps {
namespace {

fs::path federation_of(const fs::path& run) { return run / "federation"; }

/// Returns the last exchange with each client.
std::map<int64_t, flower::SessionReport> last_sessions(const fs::path& federation) {
  std::map<int64_t, flower::SessionReport> sessions;
  const auto lines = read_sealed_lines(flower::sessions_file(federation));
  for (const auto& line : lines.whole().lines) {
    auto session = record::read<flower::SessionReport>(line.view());
    sessions[session.client] = std::move(session);
  }
  return sessions;
}

}  // namespace

bool is_served(const fs::path& run) { return path_exists(federation_of(run) / "members.json"); }

std::string clients_status(const fs::path& run) {
  const auto federation = federation_of(run);
  const flower::Roster roster(federation / "members.json");
  const auto sessions = last_sessions(federation);
  report::Table grid{.head = {"client", "node", "budget", "examples", "round", "seconds", "MiB up", "last exchange"}};
  for (const auto& [id, member] : roster.members()) {
    const auto session = sessions.contains(id) ? sessions.at(id) : flower::SessionReport{};
    grid.add({std::to_string(id), member.name, fixed(member.budget, 3), std::to_string(member.examples),
              std::to_string(session.round), fixed(session.seconds, 1),
              fixed(static_cast<double>(session.bytes_up) / (1 << 20), 1),
              session.outcome.empty() ? "none yet" : session.outcome});
  }
  return concat(roster.members().size(), " clients have joined\n", report::text_of(grid));
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
    if (!line.starts_with('#')) text += line + "\n";
  return text;
}

}  // namespace evenkeel::apps
