// `evenkeel serve`: runs the server of a federation whose clients are nodes.
#include <algorithm>
#include <iostream>
#include <mutex>

#include "apps/commands.h"
#include "apps/endpoints.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "apps/output_paths.h"
#include "apps/resume_flags.h"
#include "base/format/command_line.h"
#include "base/format/limits.h"
#include "base/plain/address.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/system/interrupt.h"
#include "base/system/service.h"
#include "fed/run/new_run_folder.h"
#include "flower/federation/app_grid.h"
#include "flower/federation/coordinator_grid.h"
#include "flower/federation/serve.h"
#include "report/page.h"
#include "report/score_table.h"

namespace evenkeel::apps {
namespace {

struct ServeFlags {
  std::string config, out, base, listen = "127.0.0.1:8000", allow, certificate, key, fab, grid;
  std::vector<std::string> settings;
  double patience = 300;
  std::optional<int64_t> from_round;
  MethodFlag method;
  bool open = false, insecure = false, resume = false, no_evaluation = false;
};

/// Returns the settings of the config: the choice of a method, and those of --set.
std::vector<std::string> settings_of(const ServeFlags& flags) {
  auto settings = flags.method.settings();
  settings.insert(settings.end(), flags.settings.begin(), flags.settings.end());
  return settings;
}

/// Holds the latest status. Threads: the run's thread writes, the server's threads read.
class StatusPage {
 public:
  void set(const flower::FleetStatus& status) {
    auto text = flower::prometheus_text(status);
    const std::scoped_lock lock(mutex_);
    text_ = std::move(text);
  }
  std::string text() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

void show(const flower::FleetStatus& status, StatusPage& page) {
  page.set(status);
  notify_status(concat("round ", status.round, " of ", status.rounds, ", ", status.members, " of ", status.clients,
                       " clients have a node"));
}

flower::CoordinatorOptions network_of(const ServeFlags& flags) {
  const auto address = parse_server_address(flags.listen, "--listen", 0);
  EK_CHECK(flags.open == flags.allow.empty(), kConfig, "who may join is said by one of --allow FILE and --open");
  EK_CHECK(flags.certificate.empty() == flags.key.empty(), kConfig, "TLS needs both --certificate and --key");
  EK_CHECK(flags.insecure || !flags.certificate.empty(), kConfig,
           "a server needs TLS (--certificate and --key), or --insecure for a network of one's own");
  check_scheme(address, flags.listen, "--listen", !flags.certificate.empty(), "--certificate FILE and --key FILE");
  flower::CoordinatorOptions network{
      .host = address.host, .port = address.port, .insecure = flags.insecure, .folder = {}};
  if (!flags.certificate.empty()) network.tls = flower::TlsFiles{flags.certificate, flags.key};
  if (!flags.open) network.allowed = flower::read_allow_list(flags.allow);
  network.allow_file = flags.allow;
  network.open = flags.open;
  if (!flags.fab.empty()) network.fab = flags.fab;
  return network;
}

/// Returns the nodes that may join, as RunRequest::allowed has them.
std::optional<std::vector<std::string>> admitted(const flower::CoordinatorOptions& network) {
  if (network.allowed.empty()) return std::nullopt;
  std::vector<std::string> nodes;
  for (const auto& one : network.allowed) nodes.push_back(concat(one.key.fingerprint(), " ", one.name));
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::string folder_of(const ServeFlags& flags) {
  return flags.out.empty()
             ? fed::RunRequest{.file = flags.config, .settings = settings_of(flags)}.config().folder().string()
             : flags.out;
}

/// Returns the given flags of a server that listens itself, but for --listen.
std::vector<std::string> listening_words(const ServeFlags& flags) {
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--allow", flags.allow);
  add("--certificate", flags.certificate);
  add("--key", flags.key);
  add("--fab", flags.fab);
  if (flags.open) words.emplace_back("--open");
  if (flags.insecure) words.emplace_back("--insecure");
  return words;
}

/// Checks that no flag of a server that listens itself stands beside --grid, where it would have no effect.
void check_grid_alone(const ServeFlags& flags) {
  if (flags.grid.empty()) return;
  auto others = listening_words(flags);
  if (flags.listen != ServeFlags().listen) others.insert(others.begin(), {"--listen", flags.listen});
  EK_CHECK(others.empty(), kConfig, "--grid is ", flags.grid,
           ", where a Flower app listens for this server; remove: ", command_line(others));
}

/// Returns the given flags of the network.
std::vector<std::string> network_words(const ServeFlags& flags) {
  std::vector<std::string> words{"--grid", flags.grid};
  if (flags.grid.empty()) {
    words = {"--listen", flags.listen};
    const auto others = listening_words(flags);
    words.insert(words.end(), others.begin(), others.end());
  }
  if (flags.patience != ServeFlags().patience) words.insert(words.end(), {"--patience", concat(flags.patience)});
  return words;
}

/// Returns the command that resumes the run or its wait for clients, or starts it again if neither has begun.
std::string next_serve_command(const ServeFlags& flags) {
  const bool began = fed::holds_run(folder_of(flags));
  const bool waits = fed::awaits_clients(folder_of(flags));
  std::vector<std::string> words{"serve", flags.config, "--out", folder_of(flags)};
  const auto method = flags.method.words();
  words.insert(words.end(), method.begin(), method.end());
  for (const auto& setting : flags.settings)
    if (!began) words.insert(words.end(), {"--set", setting});
  const auto network = network_words(flags);
  words.insert(words.end(), network.begin(), network.end());
  if (flags.no_evaluation) words.emplace_back("--no-evaluation");
  if (began || waits) words.emplace_back("--resume");
  return command_line(words);
}

/// Returns the end of the message of an interrupted server: the command that goes on.
std::string what_next(const ServeFlags& flags) {
  const fs::path folder = folder_of(flags);
  const bool saved = fed::holds_run(folder) || fed::awaits_clients(folder);
  return concat(saved ? ", the state is saved; resume with: " : ", before there was anything to save; begin with: ",
                next_serve_command(flags));
}

/// Serves the run. If it is interrupted or the disk is full, the next command is added to the message.
flower::ServedRun served(const ServeFlags& flags, const flower::ServeOptions& options,
                         const std::function<std::unique_ptr<flower::Grid>(const fs::path& folder)>& listen) {
  try {
    return flower::serve(options, listen);
  } catch (const Interrupted& interrupted) {
    throw Interrupted(concat(interrupted.what(), what_next(flags)));
  } catch (const Error& error) {
    if (!is_full_disk(error)) throw;
    throw error.with_advice(concat("what is committed stays; make room, then: ", next_serve_command(flags)));
  }
}

void run_serve(const ServeFlags& flags) {
  limits::check_above_zero("--patience", flags.patience);
  check_from_round(flags.from_round, flags.resume);
  check_base_flag(flags.base, flags.resume);
  check_grid_alone(flags);
  EK_CHECK(!flags.method.changed || flags.resume, kConfig, "--changed-method goes with --resume");
  flags.method.check_choice(flags.config, flags.settings);
  auto network = flags.grid.empty() ? network_of(flags) : flower::CoordinatorOptions{.folder = {}};
  check_not_kept("--out", folder_of(flags));
  if (!flags.grid.empty()) check_not_kept("--grid", flags.grid);
  watch_interrupts();
  const NewFolders folders(folder_of(flags));
  StatusPage page;
  network.metrics = [&page] { return page.text(); };
  network.not_ready = [] { return interrupt_requested() ? "the server stops" : ""; };
  flower::ServeOptions options{
      .request = {.file = flags.config, .settings = settings_of(flags), .out = flags.out, .base = flags.base},
      .resume = flags.resume,
      .from_round = flags.from_round,
      .patience_s = flags.patience,
      .evaluate = !flags.no_evaluation,
      .stop = alive_or_interrupted,
      .on_status = [&page](const flower::FleetStatus& status) { show(status, page); }};
  options.request.allowed = admitted(network);
  options.request.changed_method = flags.method.changed;
  const auto listen = [&](const fs::path& folder) -> std::unique_ptr<flower::Grid> {
    if (!flags.grid.empty()) return std::make_unique<flower::AppGrid>(flags.grid, alive_or_interrupted);
    network.folder = folder;
    auto grid = std::make_unique<flower::CoordinatorGrid>(network);
    log::info("[serve] listening at ", network.tls ? "https://" : "http://", address_text(network.host, grid->port()));
    notify_ready();
    return grid;
  };
  const auto [folder, scores] = served(flags, options, listen);
  report::save_report(std::array{folder}, folder / "report.html");
  std::cout << report::score_text(scores) << std::flush;
  std::cerr << "the run is in " << folder.string() << ", its report is " << (folder / "report.html").string() << "\n";
}

}  // namespace

void add_serve_command(CLI::App& program) {
  auto flags = std::make_shared<ServeFlags>();
  auto* command = program.add_subcommand("serve", "the server of a federation whose clients are nodes");
  command->footer(
      "Example: evenkeel serve CONFIG --listen 0.0.0.0:8000 --allow keys.txt --certificate server.pem --key "
      "server.key\n\n"
      "Waits until every client of CONFIG has a node (evenkeel node, or a Flower SuperNode with --fab), then runs as "
      "`evenkeel train` does, and leaves the same in the run folder.");
  command->add_option("CONFIG", flags->config, "TOML file")->required();
  command->add_option("--set", flags->settings, "a.b=value, changes one key; as often as needed");
  flags->method.add_choice_to(*command);
  command->add_option("--out", flags->out, "run folder, new or empty (default: runs/<name>)");
  command->add_option("--listen", flags->listen, "HOST:PORT to listen at, [::1]:8000 for IPv6; port 0: any free one")
      ->capture_default_str();
  command->add_option("--allow", flags->allow, "OpenSSH public key lines of the nodes that may join");
  command->add_flag("--open", flags->open, "let any key join");
  command->add_option("--certificate", flags->certificate, "PEM file of the server's certificate chain");
  command->add_option("--key", flags->key, "PEM file of its private key");
  command->add_flag("--insecure", flags->insecure, "without TLS: for a network of one's own");
  command
      ->add_option("--patience", flags->patience,
                   "seconds for which a node that is away is waited for, where clients.deadline is 0")
      ->capture_default_str();
  command->add_option("--fab", flags->fab, "app bundle (flwr build) for stock SuperNodes");
  command->add_option(
      "--grid", flags->grid,
      "in the place of --listen: a socket at which a Flower app drives this server (docs/flower-app.md)");
  command->add_flag("--no-evaluation", flags->no_evaluation, "score nothing here: the model's weights are not needed");
  command->add_flag("--resume", flags->resume,
                    "resume from the last committed round in the run folder; with --set train.rounds=N, to N rounds in "
                    "all");
  add_from_round_flag(*command, flags->from_round);
  add_base_flag(*command, flags->base, "--resume");
  command->callback([flags] { run_serve(*flags); });
}

}  // namespace evenkeel::apps
