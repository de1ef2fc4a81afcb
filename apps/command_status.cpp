// `evenkeel status`: prints the progress of a run from its folder, or of a federation from its server.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/audit_pair.h"
#include "apps/audit_status.h"
#include "apps/commands.h"
#include "apps/served_status.h"
#include "base/plain/files.h"
#include "fed/run/new_run_folder.h"
#include "report/run_status.h"
#include "study/definition/study_state.h"
#include "study/running/study_status.h"

namespace evenkeel::apps {
namespace {

struct StatusFlags {
  std::string run;
  ServerAddress server;
  bool audit = false;
  std::vector<std::string> heads;
  std::string other;
};

/// Prints the status of a folder. The folder of a server exists before its run, while the server waits for clients.
void show_run(const fs::path& folder) {
  if (study::holds_study(folder)) {
    std::cout << study::study_status(folder) << std::flush;
    return;
  }
  const bool served = is_served(folder);
  if (fed::holds_run(folder) || !served)
    std::cout << report::run_status(folder);
  else
    std::cout << "waiting for clients\n";
  if (served) std::cout << clients_status(folder);
  std::cout << std::flush;
}

void show_audit(const StatusFlags& flags) {
  const auto file = audit_file(flags.run);
  std::string text = audit_status(file, flags.heads);
  if (!flags.other.empty()) text += compared_audits(file, audit_file(flags.other));
  std::cout << text << std::flush;
}

void run_status_command(const StatusFlags& flags) {
  EK_CHECK(flags.run.empty() != flags.server.server.empty(), kConfig, "status: one of RUN and --server is needed");
  EK_CHECK(flags.run.empty() || (flags.server.ca.empty() && !flags.server.insecure), kConfig,
           "--ca and --insecure go with --server");
  EK_CHECK(!flags.audit || !flags.run.empty(), kConfig, "--audit checks files of this machine: name a folder");
  EK_CHECK(flags.audit || (flags.heads.empty() && flags.other.empty()), kConfig, "--head and --with go with --audit");
  if (flags.audit) return show_audit(flags);
  if (!flags.run.empty()) return show_run(flags.run);
  std::cout << server_status(flags.server) << std::flush;
}

}  // namespace

void add_status_command(CLI::App& program) {
  auto flags = std::make_shared<StatusFlags>();
  auto* command = program.add_subcommand("status", "how far a run or a federation is");
  command->footer(
      "Example: evenkeel status runs/two\n\n"
      "From the folder of a study: what became of each run. From a run folder, also while a process works on it: "
      "rounds, the last loss, who works on it, the time left; of "
      "a "
      "federation also who has joined, and what came of the last exchange with each client. Or the figures that a "
      "server gives Prometheus.");
  command->add_option("RUN", flags->run, "folder of a run or of a study");
  command->add_option("--server", flags->server.server, "HOST:PORT of a server, in the place of a folder");
  command->add_option("--ca", flags->server.ca, "PEM file of the authority that signed its certificate");
  command->add_flag("--insecure", flags->server.insecure, "without TLS");
  command->add_flag("--audit", flags->audit,
                    "check the audit log of a federation, of a server's run folder or of a node's memory folder: each "
                    "line must go on from the one before");
  command->add_option("--head", flags->heads,
                      "with --audit: a digest of a line that was written down elsewhere and must still be there");
  command->add_option("--with", flags->other,
                      "with --audit: the log of the other side, a node's or the server's; each must have the lines "
                      "whose digests the other noted");
  command->callback([flags] { run_status_command(*flags); });
}

}  // namespace evenkeel::apps
