#include "flower/federation/node_client.h"

#include <algorithm>

#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/machine.h"
#include "data/row_files.h"
#include "fed/config/arithmetic.h"
#include "fed/config/config_paths.h"
#include "fed/round/adapter_readers.h"
#include "fed/round/payload_check.h"
#include "fed/run/contamination.h"
#include "fed/run/machine_speed.h"
#include "fed/run/make_experiment.h"
#include "fed/store/run_request.h"
#include "flower/federation/own_content.h"
#include "flower/federation/rows_error.h"
#include "flower/format/flwr_message.h"
#include "lora/peft.h"

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

/// Checks the task families of the server's config. It may not name files of this machine, so the rows that the run
/// divides are generated, or are in a folder that the node's own options name.
void check_dealt_rows(const fed::ExperimentConfig& config, const NodeClientOptions& options) {
  for (const auto& name : config.data.task) {
    const auto& family = data::find_task_family(name);
    EK_CHECK(family.generates || family.in_folder, kConfig, "the run's rows are files that its config names (", name,
             "), and a node reads none but its own: every [[clients.client]] has to bring `data`");
    EK_CHECK(family.generates || !options.data.empty(), kConfig, "the run deals out rows of ", name,
             ": --data, the folder they are in, is missing");
  }
}

/// Replaces the server's rows in the config by the node's own rows, or by the node's folder of the divided rows.
void put_rows(fed::ExperimentConfig& config, int64_t client, const NodeClientOptions& options) {
  auto& clients = config.clients.client;
  if (!config.clients.own_rows()) {
    check_dealt_rows(config, options);
    EK_CHECK(options.data.size() < 2 && options.test.empty(), kConfig,
             "the run deals out its own rows: --data is the folder they are in, and there is no --test");
    if (!options.data.empty()) config.data.path = options.data[0];
    return;
  }
  EK_CHECK(!options.data.empty(), kConfig, "in this run every client brings rows of its own: --data is missing");
  for (auto& one : clients) one.data.clear(), one.test.clear();
  auto& own = clients.at(static_cast<size_t>(client));
  own.data = data::with_files_of_folders(options.data);
  own.test = data::with_files_of_folders(options.test);
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

/// Returns true if the model's own template is `text`.
bool has_template(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  try {
    return tokenizer.chat_templates().source() == text;
  } catch (const Error&) {  // it has none, or one that cannot be read
    return false;
  }
}

/// Writes the server's template to a file of this machine and puts its path into the config. If the run uses the
/// model's own template and this model has the same one, no file is needed.
void put_template(fed::ExperimentConfig& config, const Offer& offer, const NodeClientOptions& options) {
  auto& file = config.data.chat_template;
  const bool brought = !offer.chat_template.empty();
  EK_CHECK(brought || file.empty(), kData, "the server's offer does not bring the chat template that its config names");
  if (!brought) return;
  EK_CHECK(config.data.form == data::PromptTemplate::kChat && (file.empty() || file == kTemplateInOffer), kData,
           "the server's offer: a chat template that its config does not ask for");
  const auto tokenizer = tokenizer::Tokenizer::of_model(models::find_model_folder(options.model));
  EK_CHECK(named_tokens_digest(tokenizer) == offer.named_tokens, kConfig, "the model in ", options.model,
           " names other special tokens (tokenizer_config.json, special_tokens_map.json) than the server's: its chat ",
           "template would write another text");
  if (file.empty() && has_template(tokenizer, offer.chat_template)) return;
  EK_CHECK(!options.folder.empty(), kInternal, "no folder to keep the server's chat template in");
  make_folders(options.folder);
  const auto copy = options.folder / concat(offer.run, "-chat_template.jinja");
  write_file_atomic(copy, offer.chat_template);
  file = copy.string();
}

/// Returns the server's config with the paths and settings of this machine.
fed::RunConfig node_config(const Offer& offer, const NodeClientOptions& options) {
  auto config = fed::ExperimentConfig::read(config::Table::parse(offer.config, "the server's offer"));
  EK_CHECK(offer.client < config.clients.count, kData, "the server's offer: client ", offer.client, " of ",
           config.clients.count);
  config.model.path = options.model;
  if (options.threads > 0) config.threads = options.threads;
  config.clients.parallel = 1;
  config.evaluate.bert_score = {};
  put_rows(config, offer.client, options);
  put_template(config, offer, options);
  if (config.clients.own_rows()) config = fed::with_inputs(std::move(config));  // else its paths are the server's
  const auto settled = fed::settle(std::move(config), {});
  return options.budget ? with_budget(settled, offer.client, *options.budget) : settled;
}

/// Estimates the tokens of a round, from the mean length of the rows.
int64_t round_tokens(const train::LocalTraining& training, const std::vector<data::Example>& rows) {
  size_t tokens = 0;
  for (const auto& row : rows) tokens += row.ids.size();
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t passes = train::local_steps(training, count) * training.batch_size * training.accumulation;
  return static_cast<int64_t>(tokens) * passes / std::max<int64_t>(1, count);
}

/// Gives the client the largest budget at which this machine finishes a round within `seconds` or within half of the
/// deadline. If it never does, the client gets the smallest measured budget.
void propose_budget(fed::Experiment& e, int64_t client, double seconds) {
  constexpr double kMeasure_s = 2;  // of training, per K
  auto& server = e.server;
  EK_CHECK(server.model.num_experts > 0 && !server.config->method.entry().takes_unequal_ranks(), kConfig,
           "--budget auto measures what experts cost; method ", server.config->method.name, " on this model has ",
           server.model.num_experts, " of them and makes clients differ otherwise");
  if (const double deadline = server.config->clients.deadline; deadline > 0) seconds = std::min(seconds, deadline / 2);
  const auto top_ks = fed::measured_top_ks(e);
  const auto profile = fed::measured_profile(e, top_ks, kMeasure_s);
  const auto tokens = round_tokens(server.config->train, e.fabric.shards.examples.at(static_cast<size_t>(client)));
  int64_t best = top_ks.front();
  for (size_t i = 0; i < top_ks.size(); ++i)
    if (static_cast<double>(tokens) <= profile.tokens_per_second[i] * seconds) best = std::max(best, top_ks[i]);
  const double budget = static_cast<double>(best) / static_cast<double>(server.model.top_k);
  log::info("[node] this machine is done with a round of ", tokens, " tokens in ", seconds, " s at K = ", best,
            ": budget ", budget);
  std::vector<size_t> examples;
  for (const auto& shard : e.fabric.shards.examples) examples.push_back(shard.size());
  e.use(with_budget(server.config, client, budget));
  server.clients = e.fabric.clients = fed::make_clients(server.config, server.model, examples);
}

/// Returns true if a key affects training. Keys of paths, clients and evaluation do not.
bool is_agreed_on(std::string_view difference) {
  constexpr std::array<std::string_view, 10> kOwn = {"name",      "threads",  "model.path", "model.base_cache",
                                                     "data.path", "clients",  "data.files", "evaluate",
                                                     "output",    "lora.init"};
  return std::none_of(kOwn.begin(), kOwn.end(), [&](auto own) { return difference.starts_with(own); });
}

void require_same(const fs::path& agreed, const fed::RunConfig& offered) {
  if (agreed.empty()) return;
  auto changes = fed::difference_lines(fed::settled_like(agreed_config(agreed), offered), offered);
  std::erase_if(changes, [](const auto& change) { return !is_agreed_on(change); });
  EK_CHECK(changes.empty(), kConfig, "the server's run is not that of ", agreed.string(), ": ", join(changes, "; "));
}

/// Checks the client's own test rows and returns them; null if it has none. \throws kData for rows that cannot be read
/// or scored
std::shared_ptr<const scoring::PreparedTask> own_test_rows(const fed::Experiment& e, int64_t client) {
  const auto& context = e.fabric.context;
  const auto& config = context.config;
  if (!scores_clients_rows(config) || !config.plan(client).tests()) return nullptr;
  auto rows = context.test_rows({.task = "files", .own_of = client});
  scoring::check_task(*context.model, *rows, context.evaluation());
  return rows;
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

/// Calls `write`. If it throws, those of `folders` that it made and left empty are removed.
void without_empty_folders(std::vector<fs::path> folders, const std::function<void()>& write) {
  std::erase_if(folders, [](const auto& folder) { return path_exists(folder); });
  try {
    write();
  } catch (...) {
    std::error_code ignored;
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) fs::remove(*folder, ignored);
    throw;
  }
}

struct OwnExperiment {
  fed::Experiment experiment;
  int64_t test_rows = 0;
  ContentDigests content{};
};

/// Builds the experiment of an offer. Base and rows are checked before the weights are loaded.
/// \param folder  of the client's state, where the run's salt is kept
OwnExperiment experiment_for(const Offer& offer, const fed::RunConfig& config, const fs::path& folder) {
  int64_t rows = 0;
  ContentDigests content;
  auto experiment = fed::make_experiment(config, fed::Purpose::kTrain, [&](const fed::Experiment& e) {
    require_same_base(offer, e);
    const auto tested = own_test_rows(e, offer.client);
    rows = tested ? static_cast<int64_t>(tested->rows().size()) : 0;
    content = content_digests(e, offer.client, tested.get(), salt_of_run(folder, offer.run));
    require_content(offer, config, content, e.fabric.shards.examples.at(static_cast<size_t>(offer.client)).size());
    if (e.server.config->clients.own_rows()) fed::warn_of_contamination(e);
  });
  return {std::move(experiment), rows, std::move(content)};
}

}  // namespace

fed::ExperimentConfig agreed_config(const fs::path& file) {
  auto config = fed::RunRequest{.file = file}.config();
  const auto of_chat = expand_data_path(config.data.chat_template, "data.chat_template");
  EK_CHECK(of_chat.empty() || is_file(of_chat), kIo, file.string(), ": data.chat_template is ", of_chat.string(),
           ", which is not there");
  return config;
}

struct NodeClient::Agreement {
  Offer offer;
  fed::Experiment experiment;
  methods::ClientProfile self;
  fed::DownloadTerms terms;
  NodeMemory memory;

  /// Returns the bounds of the final adapter: the whole change of the base, and factors of the largest rank.
  fed::DownloadTerms adapter_terms() const {
    const auto& server = experiment.server;
    auto most = fed::news_terms(server, server.config->train.rounds);
    most.rank = most.delta_rank + server.max_rank();
    for (const auto& [name, site] : server.sites)
      most.values += std::max<int64_t>(site.experts, 1) * most.rank * (site.in + site.out);
    return most;
  }
  fed::DownloadTerms terms_of(std::string_view kind) const {
    const auto& server = experiment.server;
    if (kind == kAdapterEnvelope) return adapter_terms();
    return kind == kUpdateEnvelope ? fed::news_terms(server, server.config->train.rounds) : terms;
  }
  /// Returns an upper bound of the size of an envelope of this kind.
  int64_t most_bytes(std::string_view kind) const {
    constexpr int64_t kValue = 8, kHeads = int64_t{64} << 20;
    return terms_of(kind).values * kValue + kHeads;
  }
};

void NodeClient::consent(const Envelope& envelope, int64_t payload_bytes) const {
  const bool laden =
      envelope.kind == kUpdateEnvelope || envelope.kind == kTaskEnvelope || envelope.kind == kAdapterEnvelope;
  const bool bare =
      envelope.kind == kOfferEnvelope || envelope.kind == kShutdownEnvelope || envelope.kind == kRefusalEnvelope;
  EK_CHECK(laden || bare, kData, "an envelope of unknown kind \"", shown(envelope.kind), "\"");
  const bool known = agreement_ && agreement_->offer.run == envelope.run;
  const int64_t most = known && !bare ? agreement_->most_bytes(envelope.kind) : 0;
  EK_CHECK(!known || payload_bytes <= most, kData, "a ", envelope.kind, " of ", payload_bytes,
           " bytes, agreed on: up to ", most);
  const int64_t available = machine::memory().available;
  EK_CHECK(payload_bytes <= available, kData, "a ", envelope.kind, " of ", payload_bytes, " bytes, memory has ",
           available);
}

Envelope NodeClient::answer(const Envelope& envelope) {
  EK_CHECK(is_name(envelope.run), kData, "a run is named by letters and digits, not \"", shown(envelope.run), "\"");
  if (envelope.kind == kOfferEnvelope) return consider(envelope);
  if (envelope.kind == kShutdownEnvelope) return part(envelope);
  if (envelope.kind == kRefusalEnvelope)
    fail(kConfig, "the server does not take this node: ",
         shown(read_header<JoinRefusal>(envelope.header, "a refusal").reason, kMostReason));
  if (!agreement_ || agreement_->offer.run != envelope.run)
    return {.run = envelope.run, .kind = kUnknownRunEnvelope, .header = "{}"};
  if (envelope.kind == kAdapterEnvelope) return keep(envelope);
  return envelope.kind == kUpdateEnvelope ? on_reply(envelope) : work(envelope);
}

Envelope NodeClient::keep(const Envelope& envelope) {
  const auto& server = agreement_->experiment.server;
  auto adapter = lora::decode(envelope.payload_N, "the final adapter");
  fed::check_download(adapter, server.sites, agreement_->adapter_terms(), "the final adapter");
  if (!options_.adapters.empty()) {
    const auto folder = options_.adapters / concat(server.config->name, "-", envelope.run.substr(0, 8));
    const auto factors = lora::received(std::move(adapter)).adapters;
    without_empty_folders({options_.adapters, folder}, [&] {
      lora::save_peft_adapter(folder, factors, server.all_sites,
                              {server.model_folder.string(), lora::standard_layout(server.model.peft)});
    });
    log::info("[node] the final adapter is in ", folder.string());
    fed::warn_of_readers(server, concat("[node] ", folder.string()));
  }
  return {.run = envelope.run, .kind = kAcknowledgedEnvelope, .header = "{}"};
}

Envelope NodeClient::part(const Envelope& envelope) {
  log::info("[node] the run is over");
  if (agreement_ && agreement_->offer.run == envelope.run) agreement_.reset();
  return {.run = envelope.run, .kind = kShutdownEnvelope, .header = "{}"};
}

void NodeClient::delivered() {
  if (agreement_) agreement_->memory.delivered();
}

Envelope NodeClient::consider(const Envelope& envelope) {
  auto offer = read_header<Offer>(envelope.header, "the server's offer");
  EK_CHECK(offer.run == envelope.run, kData, "the server's offer names two runs");
  auto config = node_config(offer, options_);
  require_same(options_.agreed, config);
  config = config.with([&](fed::ExperimentConfig& values) { fed::compute_on(values.model, options_.device); });
  agreement_.reset();  // its base goes before another comes
  auto [experiment, test_rows, content] =
      on_own_rows(options_, [&] { return experiment_for(offer, config, options_.folder); });
  const bool joined_before = offer.budget > 0;
  if (options_.measure_s > 0 && !joined_before) propose_budget(experiment, offer.client, options_.measure_s);
  const auto self = experiment.server.clients.at(static_cast<size_t>(offer.client));
  require_as_joined(offer, self);
  const auto terms = fed::download_terms(experiment.server, self);
  if (options_.on_agreement) options_.on_agreement(upload_summary(experiment.server, self));
  agreement_ = std::make_shared<Agreement>(
      Agreement{offer, std::move(experiment), self, terms, NodeMemory(options_.folder, offer.run)});
  const Acceptance acceptance{.client = self.id,
                              .budget = self.budget,
                              .examples = static_cast<int64_t>(self.examples),
                              .test_rows = test_rows,
                              .program = std::string(version()),
                              .content = content};
  return {.run = offer.run, .kind = kAcceptanceEnvelope, .header = record::write(acceptance).dump()};
}

Envelope NodeClient::on_reply(const Envelope& envelope) {
  const auto news = std::get<fed::StateUpdate>(fed::from_parts(envelope.header, envelope.payload_N, "news"));
  const auto& server = agreement_->experiment.server;
  if (news.payload.size() > 0)
    fed::check_download(lora::decode(news.payload.bytes, "news"), server.sites, fed::news_terms(server, news.round),
                        "news");
  agreement_->experiment.fabric.announce({}, news);
  return {.run = envelope.run, .kind = kAcknowledgedEnvelope, .header = "{}"};
}

void NodeClient::require_agreed(const fed::Task& task) const {
  const auto& [offer, experiment, self, terms, memory] = *agreement_;
  const auto& asked = task.client;
  const auto& server = experiment.server;
  EK_CHECK(asked.id == self.id, kData, "a task for client ", asked.id, ", this is client ", self.id);
  if (const auto* sum = std::get_if<fed::SumGradients>(&task.ask)) {
    for (const auto& site : sum->sites)
      EK_CHECK(server.config->method.entry().asks_gradients && server.sites.contains(site), kData,
               "asked for the gradient of ", shown(site), ", which was not agreed on");
    return;
  }
  EK_CHECK(asked.rank <= (asked.trains ? self.rank : server.max_rank()), kData, "a task of rank ", asked.rank,
           ", agreed on: up to ", self.rank);
  const auto* score = std::get_if<fed::Score>(&task.ask);
  const bool agreed = scores_clients_rows(server.config);
  EK_CHECK(!score || (agreed && score->own_rows && !score->predictions), kData, "asked to score ", shown(score->task),
           score->predictions ? " and to send its answers" : "",
           ", agreed on: ", agreed ? "scores on its own rows" : "nothing of the kind");
  EK_CHECK(score || (asked.trains && asked.top_k == self.top_k && asked.budget == self.budget), kData,
           "asked to train with K = ", asked.top_k, " at budget ", asked.budget, ", agreed on: K = ", self.top_k,
           " at ", self.budget);
}

Envelope NodeClient::work(const Envelope& envelope) {
  const auto message = fed::from_parts(envelope.header, envelope.payload_N, "a task");
  const auto* task = std::get_if<fed::Task>(&message);
  EK_CHECK(task, kData, "an envelope of kind task that holds none");
  require_agreed(*task);
  auto& fabric = agreement_->experiment.fabric;
  const bool trains = std::holds_alternative<fed::Train>(task->ask);
  if (trains)
    fed::check_download(lora::decode(task->payload.bytes, "a task"), agreement_->experiment.server.sites,
                        agreement_->terms, "a task");
  fabric.memories[task->client.id] = agreement_->memory.before(task->round);
  Envelope answer{envelope.run, kReplyEnvelope, {}};
  const auto on_reply = [&](const fed::Reply& reply) {
    answer.header = fed::header_of(reply);
    if (const auto* payload = fed::encoded_payload(reply.upload)) answer.payload_N = payload->bytes;
    if (trains) agreement_->memory.propose(task->round, reply.memory);
  };
  on_own_rows(options_, [&] {
    fabric.exchange(std::span(&task->client, 1), {.task_of = [&](const methods::ClientProfile&) { return *task; },
                                                  .on_reply = on_reply,
                                                  .on_progress = options_.on_progress});
  });
  return answer;
}

}  // namespace evenkeel::flower
