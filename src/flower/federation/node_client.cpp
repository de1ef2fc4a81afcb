#include "flower/federation/node_client.h"

#include <algorithm>
#include <utility>

#include "base/format/fingerprint.h"
#include "base/plain/dead_parts.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/device.h"
#include "base/system/interrupt.h"
#include "base/system/machine.h"
#include "data/row_files.h"
#include "fed/config/arithmetic.h"
#include "fed/config/client_rows.h"
#include "fed/round/adapter_readers.h"
#include "fed/round/payload_check.h"
#include "fed/run/contamination.h"
#include "fed/run/make_experiment.h"
#include "flower/federation/agreed_run.h"
#include "flower/federation/budget_proposal.h"
#include "flower/federation/method_check.h"
#include "flower/federation/node_masks.h"
#include "flower/federation/node_noise.h"
#include "flower/federation/node_privacy.h"
#include "flower/federation/offered_config.h"
#include "flower/federation/own_content.h"
#include "flower/federation/own_rows.h"
#include "flower/federation/own_scores.h"
#include "flower/federation/request_check.h"
#include "flower/federation/rows_error.h"
#include "flower/format/flwr_message.h"
#include "flower/node/node_options.h"
#include "lora/peft.h"
#include "models/cost.h"

namespace evenkeel::flower {
namespace {

/// Reads a header. \param text  header of an envelope
template <typename T>
T read_header(const std::string& text, const char* what) {
  const Json json = parse_json(text, what, kData, {.bytes = size_t{64} << 20});
  return record::read<T>({json, what, kData});
}

bool is_name(std::string_view run) {
  return !run.empty() && run.size() <= 64 &&
         std::all_of(run.begin(), run.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

/// Returns the files of rows that the node's options name; none of a list that names a missing one.
std::vector<std::string> own_files(const NodeClientOptions& options) {
  std::vector<std::string> files;
  for (const auto* paths : {&options.data, &options.test}) try {
      for (auto& file : data::found_files(data::with_files_of_folders(*paths))) files.push_back(std::move(file));
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the error that is being reported tells it
    }
  return files;
}

/// Calls `work`, which reads the node's rows or computes with them. Errors of data, of which some quote rows, and
/// internal ones become RowsError.
template <typename Work>
auto on_own_rows(const NodeClientOptions& options, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != kData && error.kind() != kInternal) throw;
    throw RowsError(error, own_files(options));
  }
}

/// Calls `work`. Its exceptions become Errors, except those by which the node's owner or the server ends it.
template <typename Work>
auto with_errors(const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const RunOver&) {
    throw;
  } catch (const std::exception& error) {
    if (const auto full = device_memory_message(error); !full.empty()) fail(kIo, full);
    const std::string_view text = error.what();  // of LibTorch: with a trace in further lines
    fail(kInternal, text.substr(0, text.find('\n')));
  }
}

/// Returns the SHA-256 over the node's files of rows, by content.
std::string files_digest(const NodeClientOptions& options) {
  std::string text;
  for (const auto& file : own_files(options)) text += concat(fingerprint_of(file).digest, '\n');
  return sha256(text);
}

/// Returns the passes through the model in a round. A batch of more than kBatch rows counts as several passes.
/// \throws kConfig when they are more than the node's limit
int64_t passes_of_round(const fed::RunConfig& config, const methods::ClientProfile& self, const OwnerLimits& limits) {
  constexpr int64_t kBatch = 256;
  const auto& train = config->train;
  const double passes = static_cast<double>(train.accumulation * ((train.batch_size + kBatch - 1) / kBatch)) *
                        static_cast<double>(train::local_steps(train, static_cast<int64_t>(self.examples)));
  EK_CHECK(passes <= static_cast<double>(limits.most_steps), kConfig, "a round is ", passes,
           " passes through the model here (train.local_epochs is ", train.local_epochs, ", batch_size ",
           train.batch_size, ", accumulation ", train.accumulation, "), allowed: up to ", limits.most_steps,
           " (--most-steps)");
  return static_cast<int64_t>(passes);
}

void require_same_base(const Offer& offer, const fed::Experiment& e) {
  const auto& folder = e.server.model_folder;
  EK_CHECK(offer.sites == sites_digest(e.server.sites), kConfig, "the model in ", folder.string(),
           " has other adapted weights than the server's");
  EK_CHECK(
      offer.base.empty() || offer.base == model_digest(folder), kConfig, "the model in ", folder.string(),
      " is not the server's: a file of its weights, config, tokenizer or chat template is another one, or not there "
      "on one side");
}

/// Checks that a node which comes back has the budget and the number of rows that the run agreed on with its client,
/// and that one which joins a run under way has the budget of the run's config.
void require_as_joined(const Offer& offer, const methods::ClientProfile& self) {
  const auto examples = static_cast<int64_t>(self.examples);
  const bool is_late = offer.budget != 0 && offer.examples == 0;
  EK_CHECK(!is_late || offer.budget == self.budget, kConfig, "this node would join a run under way with budget ",
           self.budget, ", the run's config says ", offer.budget);
  EK_CHECK(is_late || offer.budget == 0 || (offer.budget == self.budget && offer.examples == examples), kConfig,
           "this node comes back with budget ", self.budget, " and ", examples, " examples, agreed on: ", offer.budget,
           " and ", offer.examples);
}

/// Checks that a node which comes back has the content that it joined with, unless the run's config lets others go on.
/// Another number of rows is refused by require_as_joined().
/// \param rows  the number of its training rows
void require_content(const Offer& offer, const fed::RunConfig& config, const ContentDigests& own, size_t rows) {
  const auto parts = changed_parts(offer.content, own);
  if (parts.empty() || offer.examples != static_cast<int64_t>(rows)) return;
  EK_CHECK(config->clients.on_change == fed::OnChange::kRecord, kConfig, "this node ", change_text(parts));
  log::warning("[node] this node ", change_text(parts), "; the server records it");
}

/// Calls `work`. If it throws, those of `paths` that it made are removed, in the reverse order; a folder only if it is
/// empty.
template <typename Work>
auto without_remains(std::vector<fs::path> paths, const Work& work) {
  std::erase_if(paths, [](const auto& path) { return path_exists(path); });
  try {
    return work();
  } catch (...) {
    std::error_code ignored;
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) fs::remove(*path, ignored);
    throw;
  }
}

/// An experiment of a node, and what it knows of its own rows.
struct OwnExperiment {
  fed::Experiment experiment;
  OwnTestRows tests;
  ContentDigests content{};
};

/// Returns the client's own test rows; null if the run scores none of them.
std::shared_ptr<const scoring::PreparedTask> scored_rows(const fed::Experiment& e, int64_t client) {
  const auto& context = e.fabric.context;
  if (!scores_clients_rows(context.config) || !context.config.plan(client).tests()) return nullptr;
  return context.test_rows({.task = "files", .own_of = client});
}

/// Builds the experiment of an offer. Base, rows and the length of a round are checked before the weights are loaded.
OwnExperiment experiment_for(const Offer& offer, const fed::RunConfig& config, const NodeClientOptions& options,
                             const std::string& files) {
  OwnTestRows tests;
  ContentDigests content;
  auto experiment = fed::make_experiment(config, fed::Purpose::kTrain, [&](const fed::Experiment& e) {
    require_same_base(offer, e);
    passes_of_round(config, e.server.clients.at(static_cast<size_t>(offer.client)), options.limits);
    require_rows(e, offer.client, options.limits);
    if (options.privacy.is_on()) fed::check_rows_train_once(e.fabric.shards, "with --privacy-epsilon");
    tests = own_test_rows(e, offer.client, options.limits, files, options.folder);
    content =
        content_digests(e, offer.client, scored_rows(e, offer.client).get(), salt_of_run(options.folder, offer.run));
    require_content(offer, config, content, e.fabric.shards.examples.at(static_cast<size_t>(offer.client)).size());
    if (e.server.config->clients.own_rows()) fed::warn_of_contamination(e);
  });
  return {std::move(experiment), std::move(tests), std::move(content)};
}

/// Returns the config without scores of single rows, unless the node's owner has agreed to them.
fed::RunConfig with_agreed_items(const fed::RunConfig& config, const NodeClientOptions& options) {
  if (options.limits.items || !options.agreed.empty()) return config;  // a config with another value was refused
  return config.with([](fed::ExperimentConfig& values) { values.evaluate.items = false; });
}

}  // namespace

struct NodeClient::Agreement {
  Offer offer;
  fed::Experiment experiment;
  methods::ClientProfile self;
  fed::DownloadTerms terms;
  NodeMemory memory;
  AgreedRun agreed;
  OwnTestRows tests{};
  std::shared_ptr<NodeMasks> masks{};  // null: uploads are not masked

  /// Returns the bounds of the final adapter: the whole change of the base, and factors of the largest rank.
  fed::DownloadTerms adapter_terms() const {
    const auto& server = experiment.server;
    auto most = fed::news_terms(server, server.config->train.rounds);
    most.rank = most.delta_rank + server.max_rank();
    most.values += models::lora_parameters(server.sites, most.rank);
    return most;
  }
  fed::DownloadTerms terms_of(std::string_view kind) const {
    const auto& server = experiment.server;
    if (kind == kAdapterEnvelope) return adapter_terms();
    if (kind == kTaskEnvelope && scores_clients_rows(server.config)) {  // scores of the adapter as it is exported
      auto most = adapter_terms();
      most.values = std::max(most.values, terms.values);
      return most;
    }
    return kind == kUpdateEnvelope ? fed::news_terms(server, server.config->train.rounds) : terms;
  }
  /// Returns an upper bound of the size of an envelope of this kind.
  int64_t most_bytes(std::string_view kind) const {
    constexpr int64_t kValue = 8, kHeads = int64_t{64} << 20;
    return terms_of(kind).values * kValue + kHeads;
  }
};

/// An offer that the client can accept.
struct NodeClient::Joined {
  Offer offer;
  AgreedTerms terms;
  fed::Experiment experiment;
  OwnTestRows tests{};
  ContentDigests content{};

  /// Returns what the client will do and send, for its owner.
  std::string summary(const methods::ClientProfile& self, const OwnerLimits& limits) const {
    const auto& config = experiment.server.config;
    auto text = concat(upload_summary(experiment.server, self), "; ", passes_of_round(config, self, limits),
                       " passes through the model per round (limit: ", limits.most_steps, "), ", config->train.rounds,
                       " rounds");
    if (!tests.no_scores.empty()) text += concat("; no scores: ", tests.no_scores);
    if (config->evaluate.items) text += "; scores of single rows";
    return text;
  }
};

NodeClient::NodeClient(NodeClientOptions options)
    : options_(std::move(options)), ledger_(open_ledger(options_)), record_(options_.folder) {}

bool NodeClient::consent(const Envelope& envelope, int64_t payload_bytes) const {
  const bool laden =
      envelope.kind == kUpdateEnvelope || envelope.kind == kTaskEnvelope || envelope.kind == kAdapterEnvelope;
  const bool bare = envelope.kind == kOfferEnvelope || envelope.kind == kShutdownEnvelope ||
                    envelope.kind == kRefusalEnvelope || is_mask_kind(envelope.kind);
  EK_CHECK(laden || bare, kData, "an envelope of unknown kind \"", shown(envelope.kind), "\"");
  EK_CHECK(!bare || payload_bytes == 0, kData, "a ", envelope.kind, " of ", payload_bytes, " bytes, allowed: 0");
  if (!agreement_ || agreement_->offer.run != envelope.run) return false;
  const int64_t most = bare ? 0 : agreement_->most_bytes(envelope.kind);
  EK_CHECK(payload_bytes <= most, kData, "a ", envelope.kind, " of ", payload_bytes, " bytes, agreed on: up to ", most);
  const int64_t available = machine::memory().available;
  EK_CHECK(payload_bytes <= available, kData, "a ", envelope.kind, " of ", payload_bytes, " bytes, memory has ",
           available);
  return true;
}

/// Remembers what the server says of the last training. It may say so with an offer, before this process has the
/// agreement and its memory.
void NodeClient::hear(const Envelope& envelope) {
  is_of_round_ = false;
  const auto outcome = record_.hear(envelope);
  if (outcome && outcome->work == fed::AuditWork::kTrain) told_ = {envelope.run, *outcome};
  settle_memory();
}

void NodeClient::settle_memory() {
  if (!told_ || !agreement_ || agreement_->offer.run != told_->first) return;
  const auto [run, outcome] = *std::exchange(told_, std::nullopt);
  agreement_->memory.decided(outcome.round - 1, outcome.taken);
}

Envelope NodeClient::answer(const Envelope& envelope) try {
  hear(envelope);
  auto answer = with_errors([&] { return answered(envelope); });
  answer.audit = record_.head();
  return answer;
} catch (const Error& error) {
  record_.refused(envelope, reason_for_server(error));
  throw;
}

Envelope NodeClient::answered(const Envelope& envelope) {
  EK_CHECK(is_name(envelope.run), kData, "a run is named by letters and digits, not \"", shown(envelope.run), "\"");
  if (envelope.kind == kOfferEnvelope) return consider(envelope);
  if (envelope.kind == kShutdownEnvelope) return part(envelope);
  if (envelope.kind == kRefusalEnvelope)
    fail(kConfig, "the server does not take this node: ",
         shown(read_header<JoinRefusal>(envelope.header, "a refusal").reason, kMostReason));
  if (!agreement_ || agreement_->offer.run != envelope.run)
    return {.run = envelope.run, .kind = kUnknownRunEnvelope, .header = "{}"};
  if (is_mask_kind(envelope.kind)) {
    EK_CHECK(agreement_->masks, kData, "a message of a masked round, this run has no masks");
    return agreement_->masks->answer(envelope);
  }
  if (envelope.kind == kAdapterEnvelope) return keep(envelope);
  return envelope.kind == kUpdateEnvelope ? on_reply(envelope) : work(envelope);
}

Envelope NodeClient::keep(const Envelope& envelope) {
  const auto& server = agreement_->experiment.server;
  if (agreement_->masks) agreement_->masks->wipe();
  auto adapter = lora::decode(envelope.payload_N, "the final adapter");
  fed::check_download(adapter, server.sites, agreement_->adapter_terms(), "the final adapter");
  if (!options_.adapters.empty()) {
    const auto folder = options_.adapters / concat(server.config->name, "-", envelope.run.substr(0, 8));
    const auto factors = lora::with_one_rank(lora::received(std::move(adapter)).adapters);
    remove_dead_parts(folder, [](std::string_view name) { return name.starts_with("adapter_"); });
    without_remains({options_.adapters, folder}, [&] {
      lora::save_peft_adapter(folder, factors, server.all_sites,
                              {server.model_folder.string(), lora::standard_layout(server.model.peft)});
    });
    log::info("[node] the final adapter is in ", folder.string());
    fed::warn_of_readers(server, concat("[node] ", folder.string()));
    record_.adapter(envelope, concat("stored in ", folder.string()));
  } else {
    record_.adapter(envelope, "not stored");
  }
  return {.run = envelope.run, .kind = kAcknowledgedEnvelope, .header = "{}"};
}

Envelope NodeClient::part(const Envelope& envelope) {
  record_.over(envelope);
  kept_.clear();
  log::info("[node] the run is over");
  if (agreement_ && agreement_->offer.run == envelope.run) {
    if (agreement_->masks) agreement_->masks->wipe();
    agreement_.reset();
  }
  return {.run = envelope.run, .kind = kShutdownEnvelope, .header = "{}"};
}

bool NodeClient::is_masked() const { return agreement_ && agreement_->masks; }

void NodeClient::delivered() {
  record_.sent();
  if (agreement_ && is_of_round_) agreement_->memory.delivered();
}

void NodeClient::not_delivered(const std::string& why) {
  record_.not_sent(why);
  if (agreement_ && is_of_round_) agreement_->memory.refused();
}

Envelope NodeClient::consider(const Envelope& envelope) {
  auto offer = read_header<Offer>(envelope.header, "the server's offer");
  EK_CHECK(offer.run == envelope.run, kData, "the server's offer names two runs");
  check_fields(envelope.header, record::write(offer).dump());
  return without_remains({template_file(options_.folder, offer.run), salt_file(options_.folder, offer.run)},
                         [&] { return accept(envelope, std::move(offer)); });
}

/// Accepts an offer, or throws why it does not.
Envelope NodeClient::accept(const Envelope& envelope, Offer offer) {
  if (!offer.method.name.empty()) require_same_method(offer.method);
  auto config = node_config(offer, options_);
  require_same_kind(offer.method, config->method.entry());
  EK_CHECK(
      config->privacy.unit != fed::PrivacyUnit::kExample, kConfig,
      "the run's [privacy] is simulated and protects no node: an operator switches it on (node --privacy-epsilon)");
  if (ledger_) require_can_be_private(config);
  require_masks_as_agreed(options_, config);
  require_client_privacy_as_agreed(options_.client_budget, config);
  require_agreed_config(options_.agreed, config, offer.client);
  config = with_agreed_items(config, options_);
  config = config.with([&](fed::ExperimentConfig& values) {
    fed::compute_on(values.model, options_.device);
    fed::choose_graphs(values.model);
  });
  AgreedRun agreed(options_.folder, offer.run);
  const AgreedTerms terms{.client = offer.client, .files = files_digest(options_), .keys = agreed_keys(offer)};
  agreed.require_same(terms, !options_.agreed.empty());
  agreement_.reset();  // its base goes before another comes
  kept_.clear();
  auto [experiment, tests, content] =
      on_own_rows(options_, [&] { return experiment_for(offer, config, options_, terms.files); });
  const bool joined_before = offer.budget > 0;
  if (options_.measure_s > 0 && !joined_before) propose_budget(experiment, offer.client, options_.measure_s);
  return join_run(envelope,
                  {.offer = std::move(offer),
                   .terms = terms,
                   .experiment = std::move(experiment),
                   .tests = tests,
                   .content = content},
                  std::move(agreed));
}

std::string NodeClient::make_private(Joined& joined, const methods::ClientProfile& self) {
  if (!ledger_) return {};
  auto& context = joined.experiment.fabric.context;
  const PrivateRun run{.run = joined.offer.run,
                       .config = context.config,
                       .rows = static_cast<int64_t>(self.examples),
                       .content = joined.content};
  const auto privacy = std::make_shared<NodePrivacy>(ledger_, options_.privacy, run, *context.shared);
  context.privacy = privacy;
  return concat("; ", privacy->summary());
}

/// Accepts an offer whose config, base and rows are right.
Envelope NodeClient::join_run(const Envelope& envelope, Joined joined, AgreedRun agreed) {
  auto& [offer, terms, experiment, tests, content] = joined;
  const auto self = experiment.server.clients.at(static_cast<size_t>(offer.client));
  require_as_joined(offer, self);
  const auto privacy = make_private(joined, self);
  const bool is_masked = experiment.server.config->secure_aggregation.mode == fed::SecureMode::kMasks;
  const auto noise = experiment.server.adds_noise_in_clients()
                         ? std::make_shared<NodeNoise>(options_, offer.run, experiment.server.config)
                         : nullptr;
  const auto masks =
      is_masked ? std::make_shared<NodeMasks>(options_, offer, experiment.server.config, noise) : nullptr;
  experiment.fabric.context.masks = masks;
  experiment.fabric.context.noise = noise;
  const auto summary = joined.summary(self, options_.limits) + privacy + (masks ? masks->summary() : "") +
                       (noise ? noise->summary() : "");
  auto agreed_summary = concat(offer.run, ": ", summary);
  if (options_.on_agreement && agreed_summary != agreed_summary_) options_.on_agreement(summary);
  terms.budget = self.budget;
  terms.examples = static_cast<int64_t>(self.examples);
  agreed.agree(std::move(terms), offer, !options_.agreed.empty());
  agreed_summary_ = std::move(agreed_summary);
  const Acceptance acceptance{.client = self.id,
                              .budget = self.budget,
                              .examples = static_cast<int64_t>(self.examples),
                              .test_rows = tests.no_scores.empty() ? tests.count : 0,
                              .program = std::string(version()),
                              .content = content,
                              .no_scores = tests.no_scores,
                              .items = experiment.server.config->evaluate.items};
  const auto download = fed::download_terms(experiment.server, self);
  agreement_ =
      std::make_shared<Agreement>(Agreement{offer, std::move(experiment), self, download,
                                            NodeMemory(options_.folder, offer.run), std::move(agreed), tests, masks});
  settle_memory();
  record_.agreed(envelope, acceptance);
  return {.run = offer.run, .kind = kAcceptanceEnvelope, .header = record::write(acceptance).dump()};
}

Envelope NodeClient::on_reply(const Envelope& envelope) {
  const auto message = fed::from_parts(envelope.header, envelope.payload_N, "news");
  const auto* news = std::get_if<fed::StateUpdate>(&message);
  EK_CHECK(news, kData, "an envelope of kind news that holds none");
  const auto& server = agreement_->experiment.server;
  check_fields(envelope.header, fed::header_of(*news));
  check_request(server, *news);
  if (news->payload.size() > 0)
    fed::check_download(lora::decode(news->payload.bytes, "news"), server.sites, fed::news_terms(server, news->round),
                        "news");
  agreement_->experiment.fabric.announce({}, *news);
  return {.run = envelope.run, .kind = kAcknowledgedEnvelope, .header = "{}"};
}

/// Checks that the node gives scores, of these rows. \throws kData, kConfig when it does not
void NodeClient::admit_score(const fed::Score& score) {
  const auto& [offer, experiment, self, terms, memory, agreed, tests, masks] = *agreement_;
  EK_CHECK(tests.no_scores.empty(), kConfig, "this node gives no scores: ", tests.no_scores);
  agreed.require_files(files_digest(options_));
  on_own_rows(options_, [&, &e = experiment, &files = agreed.files(), id = self.id] {
    remember_scored_rows(e, score.task, id, options_.limits, files, options_.folder);
  });
}

/// Checks that a task is within the agreement. A change of the base that it brings is applied. \throws kData, kConfig
/// naming what was asked
void NodeClient::admit(const fed::Task& task) {
  auto& agreement = *agreement_;
  const auto& server = agreement.experiment.server;
  auto& shared = *agreement.experiment.fabric.context.shared;
  check_request(server, agreement.self, task);
  if (agreement.masks) agreement.masks->committed(task.round);
  if (agreement.masks) agreement.masks->admit(task);
  const auto* score = std::get_if<fed::Score>(&task.ask);
  if (score) admit_score(*score);
  if (!std::holds_alternative<fed::SumGradients>(task.ask)) {
    const bool exported = score && score->served_by != scoring::ServedBy::kRun;
    auto payload = lora::decode(task.payload.bytes, "a task");
    fed::check_download(payload, server.sites,
                        exported ? agreement.adapter_terms() : fed::download_terms(server, task.client), "a task");
    if (!exported)
      shared.receive_change(task.round,
                            lora::received(lora::Payload{.base_delta = std::move(payload.base_delta)}).base_delta);
  }
  agreement.agreed.admit(task, shared.common());
}

namespace {

/// Keeps the payload of a scoring task; any other task begins a round, for which none is needed.
void keep_payload(const fed::Task& task, KeptPayloads& kept) {
  if (std::holds_alternative<fed::Score>(task.ask))
    kept.add(task.payload.bytes);
  else
    kept.clear();
}

}  // namespace

Envelope NodeClient::work(const Envelope& envelope) {
  auto payload_N = envelope.payload_N;
  if (!envelope.payload_digest.empty()) payload_N = kept_.find(envelope.payload_digest);
  if (!envelope.payload_digest.empty() && !payload_N.defined())
    return {.run = envelope.run, .kind = kLackingEnvelope, .header = "{}"};
  const auto message = fed::from_parts(envelope.header, payload_N, "a task");
  const auto* task = std::get_if<fed::Task>(&message);
  EK_CHECK(task, kData, "an envelope of kind task that holds none");
  check_fields(envelope.header, fed::header_of(*task));
  record_.received(envelope, *task);
  admit(*task);
  keep_payload(*task, kept_);
  auto& fabric = agreement_->experiment.fabric;
  const bool trains = std::holds_alternative<fed::Train>(task->ask);
  agreement_->memory.asked(task->round);
  fabric.memories[task->client.id] = agreement_->memory.before(task->round);
  Envelope answer{envelope.run, kReplyEnvelope, {}};
  const auto on_reply = [&](fed::Reply reply) {
    if (auto* scored = std::get_if<fed::Scored>(&reply.report))
      keep_back_means_of_few(*scored, options_.limits.min_test_rows);
    answer.header = fed::header_of(reply);
    if (const auto* payload = fed::encoded_payload(reply.upload)) answer.payload_N = payload->bytes;
    record_.answered(*task, reply, answer, static_cast<int64_t>(agreement_->self.examples));
    if (trains) agreement_->memory.propose(task->round, reply.memory);
    is_of_round_ = trains;
  };
  on_own_rows(options_, [&] {
    fabric.exchange(std::span(&task->client, 1), {.task_of = [&](const methods::ClientProfile&) { return *task; },
                                                  .on_reply = on_reply,
                                                  .on_progress = options_.on_progress});
  });
  return answer;
}

}  // namespace evenkeel::flower
