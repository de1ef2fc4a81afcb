// `evenkeel node`: runs one client of a federation on its own machine.
#include <fcntl.h>

#include <array>
#include <iostream>
#include <optional>

#include "apps/commands.h"
#include "apps/endpoints.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "apps/output_paths.h"
#include "base/plain/descriptor.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/device.h"
#include "base/system/interrupt.h"
#include "base/system/service.h"
#include "data/row_files.h"
#include "flower/federation/identities.h"
#include "flower/federation/node.h"
#include "flower/federation/offered_config.h"
#include "flower/federation/resident_node.h"
#include "flower/http/certificates.h"
#include "privacy/event.h"
#include "secure/ring.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::apps {
namespace {

constexpr double kLeastPoll_s = 0.01, kMostPoll_s = 3600;

struct NodeFlags {
  MethodFlag method;
  std::string server = "127.0.0.1:8000", ca, key, model, budget, agreed, memory, adapters, socket, device;
  std::vector<std::string> data, test;
  int64_t threads = 0;
  double poll = 0.5, round_seconds = 600;
  bool insecure = false, once = false;
  flower::OwnerLimits limits;
  flower::NodePrivacyOptions privacy;
  flower::MaskingOptions masking;
  flower::ClientBudgetOptions client_budget;
};

std::optional<double> budget_of(const std::string& text) {
  if (text.empty() || text == "auto") return std::nullopt;
  const auto budget = parse_number<double>(text);
  EK_CHECK(budget && *budget > 0 && *budget <= 1, kConfig, "--budget is ", shown(text),
           ", allowed: auto, or above 0, up to 1");
  return budget;
}

void check_file(const std::string& file) {
  open_file(file, O_RDONLY | O_NONBLOCK);  // a pipe would wait for a writer
  EK_CHECK(is_file(file), kIo, file, " is no file");
}

/// Checks that files or folders of rows exist. The run checks their content.
void check_rows(const std::string& path, std::string_view flag) try {
  check_path_text(path, flag);
  if (is_folder(path)) {
    EK_CHECK(!entries_of(path).empty(), kIo, path, " is an empty folder");
    return;
  }
  for (const auto& file : data::found_files(std::array{path})) check_file(file);
} catch (const Error& error) {
  throw error.with_context(std::string(flag));
}

void check_model(const std::string& path) try {
  const auto folder = models::find_model_folder(path);
  const auto shape = shape_with_weights(folder);
  tokenizer::Tokenizer::of_model(folder).check_fits(shape->spec().vocab_size, folder);
} catch (const Error& error) {
  throw error.with_context("--model");
}

/// The folders of the node's state and of final adapters. By default they are next to its key or its socket.
struct KeptFolders {
  std::string memory, adapters;
  explicit KeptFolders(const NodeFlags& flags) {
    const auto& own = flags.socket.empty() ? flags.key : flags.socket;
    memory = flags.memory.empty() ? concat(own, ".memory") : flags.memory;
    adapters = flags.adapters.empty() ? concat(own, ".adapters") : flags.adapters;
  }
};

/// Checks everything that this machine provides, before a server is contacted.
void check_brought(const NodeFlags& flags) {
  if (!flags.key.empty()) check_file(flags.key);
  if (!flags.masking.peers.empty()) flower::read_peers(flags.masking.peers);
  if (!flags.ca.empty()) check_file(flags.ca);
  if (!flags.ca.empty()) flower::check_authority(flags.ca);
  for (const auto& path : flags.data) check_rows(path, "--data");
  for (const auto& path : flags.test) check_rows(path, "--test");
  if (!flags.socket.empty()) check_not_kept("--socket", flags.socket);
  const KeptFolders kept(flags);
  check_output_folder("--memory", kept.memory);
  check_output_folder("--adapters", kept.adapters);
  if (!flags.agreed.empty()) flower::agreed_config(flags.agreed);
  check_model(flags.model);
}

flower::NodeOptions link_of(const NodeFlags& flags) {
  flower::NodeOptions link{
      .server = server_of({.server = flags.server, .ca = flags.ca, .insecure = flags.insecure}, "--superlink"),
      .key_file = flags.key,
      .folder = KeptFolders(flags).memory};
  link.poll_s = flags.poll;
  link.stop = alive_or_interrupted;
  return link;
}

flower::NodeClientOptions client_of(const NodeFlags& flags) {
  const KeptFolders kept(flags);
  return {.model = flags.model,
          .data = flags.data,
          .test = flags.test,
          .budget = budget_of(flags.budget),
          .measure_s = flags.budget == "auto" ? flags.round_seconds : 0,
          .threads = flags.threads,
          .device = flags.device,
          .folder = kept.memory,
          .adapters = kept.adapters,
          .agreed = flags.agreed,
          .privacy = flags.privacy,
          .masking = {.key = flags.key, .peers = flags.masking.peers, .min_peers = flags.masking.min_peers},
          .client_budget = flags.client_budget,
          .limits = flags.limits,
          .on_agreement = [](const std::string& summary) { std::cerr << "this node will send, " << summary << "\n"; },
          .on_progress =
              [](const fed::ClientProgress&) {
                if (alive_or_interrupted()) throw Interrupted("stopped; start it again to continue");
              }};
}

/// Checks that no flag of the node's own connection stands beside --socket, where it would have no effect.
void check_socket_alone(const NodeFlags& flags) {
  if (flags.socket.empty()) return;
  const NodeFlags defaults;
  std::vector<std::string> others;
  if (flags.server != defaults.server) others.emplace_back("--superlink");
  if (!flags.ca.empty()) others.emplace_back("--ca");
  if (flags.insecure) others.emplace_back("--insecure");
  if (flags.once) others.emplace_back("--once");
  if (flags.poll != defaults.poll) others.emplace_back("--poll");
  EK_CHECK(others.empty(), kConfig, "--socket is ", flags.socket,
           ", where Flower's ClientApps connect; remove: ", join(others));
}

/// Checks the seconds of --round-seconds and --poll.
void check_seconds(const NodeFlags& flags) {
  const bool measures = flags.budget == "auto";
  EK_CHECK(measures || flags.round_seconds == NodeFlags().round_seconds, kConfig,
           "--round-seconds goes with --budget auto");
  limits::check_above_zero("--round-seconds", flags.round_seconds);
  EK_CHECK(flags.poll >= kLeastPoll_s && flags.poll <= kMostPoll_s, kConfig, "--poll is ", flags.poll,
           ", allowed: ", kLeastPoll_s, " to ", kMostPoll_s);
}

void run_node_command(const NodeFlags& flags) {
  check_seconds(flags);
  limits::check_integer("--threads", flags.threads, 0, limits::kThreads);
  limits::check_integer("--min-test-rows", flags.limits.min_test_rows, 1, limits::kRows);
  limits::check_integer("--min-train-rows", flags.limits.min_train_rows, 1, limits::kRows);
  limits::check_integer("--most-steps", flags.limits.most_steps, 1, limits::kSteps);
  limits::check_integer("--min-peers", flags.masking.min_peers, flower::MaskingOptions::kFewest, secure::kMostMembers);
  if (const auto& own = flags.client_budget; own.is_on())
    privacy::check_budget({.epsilon = own.epsilon, .delta = own.delta}, "--client-epsilon and --client-delta");
  if (!flags.device.empty()) find_device(flags.device, "--device");  // said before a server is asked
  EK_CHECK(flags.socket.empty() != flags.key.empty(), kConfig,
           "a node has either --key, to join a server, or --socket, for Flower's ClientApps");
  check_socket_alone(flags);
  const auto link = flags.socket.empty() ? std::optional(link_of(flags)) : std::nullopt;
  const auto client = client_of(flags);
  check_brought(flags);
  watch_interrupts();
  notify_ready();
  if (link)
    flower::run_node({.link = *link, .client = client, .once = flags.once});
  else
    flower::run_resident_node(flags.socket, client, alive_or_interrupted);
}

/// Adds the flags by which a node's owner bounds what it does and gives.
void add_limits(CLI::App& command, flower::OwnerLimits& limits) {
  command
      .add_option("--min-test-rows", limits.min_test_rows,
                  "smallest number of different test rows that it gives scores of; with fewer it trains only")
      ->capture_default_str();
  command
      .add_option("--min-train-rows", limits.min_train_rows,
                  "smallest number of its rows that an update may be of; all its rows if it has fewer")
      ->capture_default_str();
  command
      .add_option("--most-steps", limits.most_steps,
                  "largest number of passes through the model per round (steps times train.accumulation)")
      ->capture_default_str();
  command.add_flag("--items", limits.items,
                   "also send the scores of single rows to a run whose evaluate.items is true");
}

/// Adds the flags by which a node's owner makes its training private for single rows.
void add_privacy(CLI::App& command, flower::NodePrivacyOptions& privacy) {
  command.add_option("--privacy-epsilon", privacy.epsilon,
                     "differential privacy of each training row, also towards the server: the budget of all runs "
                     "together, with --privacy-delta and --privacy-clip");
  command.add_option("--privacy-delta", privacy.delta, "probability with which it may fail; below 1 / rows");
  command.add_option("--privacy-clip", privacy.clip, "largest norm of the gradient of one row over all trained values");
  command.add_option("--privacy-lot", privacy.lot, "expected rows per step (default: rows per step of the run)");
  command.add_option("--privacy-noise", privacy.noise,
                     "standard deviation of the noise divided by the clip (default: the least that keeps all rounds of "
                     "a run within the budget)");
}

/// Adds the flags by which a node's owner bounds what runs may learn of the node as a whole.
void add_client_budget(CLI::App& command, flower::ClientBudgetOptions& budget) {
  command.add_option("--client-epsilon", budget.epsilon,
                     "privacy of all rows of this node together, by noise of the nodes (privacy.unit client, "
                     "secure_aggregation.mode masks): its own budget of all runs, with --client-delta; other runs are "
                     "refused (default: the budget of the run)");
  command.add_option("--client-delta", budget.delta, "probability with which it may fail; below 1 / nodes");
}

/// Adds the flags by which a node's owner says whom its uploads are masked with.
void add_masking(CLI::App& command, flower::MaskingOptions& masking) {
  command.add_option("--peers", masking.peers,
                     "public keys of the other nodes, in PEM or as serve --allow has them: runs without masks "
                     "(secure_aggregation), or whose rounds have other nodes, are refused");
  command
      .add_option(
          "--min-peers", masking.min_peers,
          "smallest number of nodes, this one included, whose uploads a masked sum is of; above 3: runs without "
          "masks are refused")
      ->capture_default_str();
}

}  // namespace

void add_node_command(CLI::App& program) {
  auto flags = std::make_shared<NodeFlags>();
  auto* command = program.add_subcommand("node", "one client of a federation, on its own machine");
  command->footer(
      "Example: evenkeel node --superlink server:8000 --ca ca.pem --key hospital.pem --model OLMoE-1B-7B --data "
      "rows/\n\n"
      "Joins a server of ours (evenkeel serve) or a Flower SuperLink, trains on its own rows when it is asked to, and "
      "sends what the method uploads, which it says before it agrees to anything.");
  command->add_option("--superlink", flags->server, "HOST:PORT of the server, or its address as it prints it")
      ->capture_default_str();
  command->add_option("--ca", flags->ca, "PEM file of the authority that signed the server's certificate");
  command->add_flag("--insecure", flags->insecure, "without TLS: for a network of one's own");
  command->add_option("--key", flags->key, "this node's private key (evenkeel keygen)");
  command->add_option("--socket", flags->socket,
                      "in the place of --superlink: a socket at which Flower's ClientApps bring letters "
                      "(docs/flower-app.md)");
  command->add_option("--model", flags->model, "folder of the base model, or builtin:tiny-olmoe")->required();
  command->add_option("--data", flags->data,
                      "its training rows: files, globs or a folder; where the run deals out its own rows, the folder "
                      "they are in");
  command->add_option("--test", flags->test, "its test rows, likewise");
  command->add_option("--budget", flags->budget,
                      "its share of the experts, whatever the server proposes; auto: this machine is measured");
  command
      ->add_option(
          "--round-seconds", flags->round_seconds,
          "with --budget auto: how long a round of training may take here; half of the run's deadline, if that is less")
      ->capture_default_str();
  command->add_option("--agreed", flags->agreed,
                      "a config: a run that trains otherwise, or whose scores show other things, is refused");
  add_limits(*command, flags->limits);
  add_privacy(*command, flags->privacy);
  add_masking(*command, flags->masking);
  add_client_budget(*command, flags->client_budget);
  flags->method.add_to(*command, "where the server's run uses it; a server sends no code");
  command->add_option("--memory", flags->memory,
                      "folder of what it keeps, with its lock and an int8 base (default: beside the key)");
  command->add_option("--adapters", flags->adapters,
                      "folder that the final adapter of each run is written into (default: beside the key)");
  command->add_option("--threads", flags->threads, "processor threads (default: as the run says)");
  add_device_flag(*command, flags->device);
  command->add_option("--poll", flags->poll, "seconds between two questions for work")->capture_default_str();
  command->add_flag("--once", flags->once, "leave when the first run is over");
  command->callback([flags] { run_node_command(*flags); });
}

}  // namespace evenkeel::apps
