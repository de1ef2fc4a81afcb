// `evenkeel status`: how a federation is doing, from its run folder or from its server.
#include <algorithm>
#include <iostream>
#include <sstream>

#include "apps/commands.h"
#include "apps/endpoints.h"
#include "base/files.h"
#include "base/sealed.h"
#include "fed/run_folder.h"
#include "flower/fleet_fabric.h"
#include "report/run_records.h"
#include "report/text_grid.h"
#include "wire/http_client.h"

namespace evenkeel {
namespace {

struct StatusFlags {
  std::string run, server, ca;
  bool insecure = false;
};

/// The last exchange with each client.
std::map<int64_t, TalkReport> last_talks(const fs::path& federation) {
  std::map<int64_t, TalkReport> talks;
  const auto lines = read_sealed_lines(federation / "talks.jsonl");
  for (const auto& line : lines.whole().lines) {
    auto talk = record::read<TalkReport>(line.view());
    talks[talk.client] = std::move(talk);
  }
  return talks;
}

void show_run(const fs::path& folder) {
  const auto federation = folder / "federation";
  EK_CHECK(path_exists(federation / "members.json"), kIo, folder.string(), ": no run of `evenkeel serve` lives there");
  const Roster roster(federation / "members.json");
  const bool began = RunFolder::holds_run(folder);
  if (!began) std::cout << "waiting for clients; " << roster.members().size() << " have joined\n";
  if (began) {
    const auto run = load_run(folder);
    const auto rounds = run_config(folder).train.rounds;
    std::cout << run.method << ", round " << run.rounds.size() << " of " << rounds << "\n";
  }
  const auto talks = last_talks(federation);
  TextGrid grid({"client", "node", "budget", "examples", "round", "seconds", "MiB up", "last exchange"});
  for (const auto& [id, member] : roster.members()) {
    const auto talk = talks.contains(id) ? talks.at(id) : TalkReport{};
    grid.add({std::to_string(id), member.name, fixed(member.budget, 3), std::to_string(member.examples),
              std::to_string(talk.round), fixed(talk.seconds, 1),
              fixed(static_cast<double>(talk.bytes_up) / (1 << 20), 1),
              talk.outcome.empty() ? "none yet" : talk.outcome});
  }
  std::cout << grid.text() << std::flush;
}

/// The server's own figures, without the lines that explain them.
void show_server(const StatusFlags& flags) {
  auto endpoint = endpoint_of(flags.server, "--server");
  if (!flags.ca.empty()) endpoint.ca_file = flags.ca;
  endpoint.insecure = flags.insecure;
  EK_CHECK(flags.insecure != endpoint.ca_file.has_value(), kConfig,
           "--server goes with one of --ca FILE and --insecure");
  const auto answer = wire::HttpClient(endpoint, 10, size_t{16} << 20).get("/metrics");
  EK_CHECK(answer.ok(), kIo, endpoint.text(), ": no figures: ", answer.status, " ", answer.detail);
  std::istringstream lines(answer.body);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with('#')) std::cout << line << "\n";
  std::cout << std::flush;
}

}  // namespace

void add_status_command(CLI::App& program) {
  auto flags = std::make_shared<StatusFlags>();
  auto* command = program.add_subcommand("status", "how a federation is doing");
  command->description(
      "Example: evenkeel status runs/two\n\n"
      "From the run folder of a server, also while it runs: who has joined, and what came of the last exchange with "
      "each client; or the figures that the server gives Prometheus.");
  command->add_option("RUN", flags->run, "folder of a run of `evenkeel serve`");
  command->add_option("--server", flags->server, "HOST:PORT of a server, in the place of a folder");
  command->add_option("--ca", flags->ca, "PEM file of the authority that signed its certificate");
  command->add_flag("--insecure", flags->insecure, "without TLS");
  command->callback([flags] {
    EK_CHECK(flags->run.empty() != flags->server.empty(), kConfig, "status: one of RUN and --server is needed");
    flags->server.empty() ? show_run(flags->run) : show_server(*flags);
  });
}

}  // namespace evenkeel
