// `evenkeel serve`: the server of a federation whose clients are nodes.
#include <iostream>
#include <mutex>

#include "apps/commands.h"
#include "apps/endpoints.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/system/interrupt.h"
#include "flower/federation/app_grid.h"
#include "flower/federation/coordinator_grid.h"
#include "flower/federation/serve.h"
#include "report/page.h"
#include "report/score_table.h"

namespace evenkeel {
namespace {

struct ServeFlags {
  std::string config, out, listen = "127.0.0.1:8000", allow, certificate, key, fab, grid;
  std::vector<std::string> settings;
  double patience = 300;
  bool open = false, insecure = false, resume = false, no_evaluation = false;
};

/// The last status, for whoever asks: the run's thread writes, the server's threads read.
class StatusPage {
 public:
  void set(const FleetStatus& status) {
    const std::scoped_lock lock(mutex_);
    text_ = prometheus_text(status);
  }
  std::string text() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

wire::CoordinatorOptions network_of(const ServeFlags& flags) {
  const auto endpoint = endpoint_of(flags.listen, "--listen", 0);
  EK_CHECK(flags.open == flags.allow.empty(), kConfig, "who may join is said by one of --allow FILE and --open");
  EK_CHECK(flags.certificate.empty() == flags.key.empty(), kConfig, "TLS needs both --certificate and --key");
  wire::CoordinatorOptions network{
      .host = endpoint.host, .port = endpoint.port, .insecure = flags.insecure, .folder = {}};
  if (!flags.certificate.empty()) network.tls = wire::TlsFiles{flags.certificate, flags.key};
  if (!flags.open) network.allowed = wire::read_allow_list(flags.allow);
  network.open = flags.open;
  if (!flags.fab.empty()) network.fab = flags.fab;
  return network;
}

void run_serve(const ServeFlags& flags) {
  auto network = flags.grid.empty() ? network_of(flags) : wire::CoordinatorOptions{.folder = {}};
  watch_interrupts();
  StatusPage page;
  network.metrics = [&page] { return page.text(); };
  ServeOptions options{.request = {.file = flags.config, .settings = flags.settings, .out = flags.out},
                       .resume = flags.resume,
                       .patience_s = flags.patience,
                       .evaluate = !flags.no_evaluation,
                       .stop = interrupt_requested,
                       .on_status = [&page](const FleetStatus& status) { page.set(status); }};
  for (const auto& allowed : network.allowed) options.names.push_back(allowed.name);
  const auto listen = [&](const fs::path& folder) -> std::unique_ptr<Grid> {
    if (!flags.grid.empty()) return std::make_unique<AppGrid>(flags.grid, interrupt_requested);
    network.folder = folder;
    auto grid = std::make_unique<CoordinatorGrid>(network);
    log::info("[serve] listening at ", network.tls ? "https://" : "http://", network.host, ":", grid->port());
    return grid;
  };
  const auto [folder, scores] = serve(options, listen);
  save_report(std::array{folder}, folder / "report.html");
  std::cout << score_table(scores) << std::flush;
  std::cerr << "the run is in " << folder.string() << ", its report is " << (folder / "report.html").string() << "\n";
}

}  // namespace

void add_serve_command(CLI::App& program) {
  auto flags = std::make_shared<ServeFlags>();
  auto* command = program.add_subcommand("serve", "the server of a federation whose clients are nodes");
  command->description(
      "Example: evenkeel serve CONFIG --listen 0.0.0.0:8000 --allow keys.txt --certificate server.pem --key "
      "server.key\n\n"
      "Waits until every client of CONFIG has a node (evenkeel node, or a Flower SuperNode with --fab), then runs as "
      "`evenkeel train` does, and leaves the same in the run folder.");
  command->add_option("CONFIG", flags->config, "TOML file")->required();
  command->add_option("--set", flags->settings, "a.b=value, changes one key; as often as needed");
  command->add_option("--out", flags->out, "run folder, new or empty (default: runs/<name>)");
  command->add_option("--listen", flags->listen, "HOST:PORT to listen at; port 0: any free one")->capture_default_str();
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
  command->add_flag("--resume", flags->resume, "go on from the last committed round in the run folder");
  command->callback([flags] { run_serve(*flags); });
}

}  // namespace evenkeel
