#include "fed/experiment.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/files.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/random.h"
#include "fed/foresight.h"
#include "nn/kernels/frozen_matmul.h"
#include "train/weight_gradient.h"

namespace evenkeel {
namespace {

void set_arithmetic(const ExperimentConfig& config) {
  at::set_num_threads(static_cast<int>(config.threads));
  const bool native = config.model.compute_dtype == ComputeDtype::kBFloat16;
  set_matmul_path(native ? MatmulPath::kNative : MatmulPath::kWiden);
}

void warn_about_cut_rows(const TokenizedRows& tokenized, size_t rows, int64_t cutoff) {
  if (tokenized.cut == 0) return;
  log::warning("[data] ", tokenized.cut, " of ", rows, " rows are longer than data.cutoff = ", cutoff, " tokens; ",
               tokenized.windowed, " of them keep a window of their context, ", tokenized.without_target,
               " lost their whole answer and are left out");
}

/// Labels that the Dirichlet partition groups by.
std::vector<std::string> labels_of(std::span<const Row> rows, const TokenizedRows& tokenized) {
  std::vector<std::string> labels;
  for (int64_t row : tokenized.rows) labels.push_back(rows[static_cast<size_t>(row)].label);
  return labels;
}

void deal_out(TokenizedRows tokenized, std::span<const std::vector<int64_t>> parts, Shards& shards) {
  for (const auto& part : parts) {
    auto& examples = shards.examples.emplace_back();
    auto& rows = shards.rows.emplace_back();
    for (int64_t index : part) {
      const auto i = static_cast<size_t>(index);
      examples.push_back(std::move(tokenized.examples[i]));
      rows.push_back(tokenized.rows[i]);
    }
  }
}

void check_positions(const ExperimentConfig& config, const ModelSpec& model) {
  EK_CHECK(config.data.cutoff <= model.max_positions, kConfig, "data.cutoff is ", config.data.cutoff,
           " tokens, the model has ", model.max_positions, " positions");
}

Tokenizer load_tokenizer(const fs::path& model_folder) {
  const auto file = model_folder / "tokenizer.json";
  EK_CHECK(fs::exists(file), kData, "the model's tokenizer is missing: ", file.string(), " does not exist");
  return Tokenizer::load(file);
}

/// A token id beyond the embedding would be read from nowhere.
void check_vocabulary(const Tokenizer& tokenizer, const ModelSpec& model, const fs::path& folder) {
  EK_CHECK(tokenizer.vocab_size() <= model.vocab_size, kData, folder.string(), ": tokenizer.json has ",
           tokenizer.vocab_size(), " ids, the model's embedding has ", model.vocab_size);
}

void check_method_fits(const MethodSection& method, const ModelSpec& model) {
  EK_CHECK(!find_method(method.name).needs_experts || model.num_experts > 0, kConfig, "method.name is ", method.name,
           ", which balances experts; the model (", model.family, ") has none");
}

void check_ranks(const ExperimentConfig& config) {
  const auto& ranks = config.clients.ranks;
  const bool equal = std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) { return rank == ranks[0]; });
  EK_CHECK(equal || find_method(config.method.name).family == MethodFamily::kRank, kConfig, "clients.ranks differ (",
           join(ranks), "), but method ", config.method.name, " needs equal ranks");
}

/// Promise: a client never trains more than its rank.
void check_rank(const Experiment& e, const ClientProfile& client, const Payload& download) {
  for (const auto& [site, factors] : download.adapters)
    EK_CHECK(factors.rank() <= client.rank, kConfig, "clients.ranks gives client ", client.id, " rank ", client.rank,
             ", but method ", e.config.method.name, " sends rank ", factors.rank(), " to every client");
}

}  // namespace

void rehearse(Experiment& e, const ServerState& state) {
  const auto weaker = [](const auto& x, const auto& y) { return x.rank < y.rank; };
  ClientProfile client = *std::min_element(e.clients.begin(), e.clients.end(), weaker);
  client.trains = false;
  TensorMap memory;
  const auto download = e.method->broadcast(state, client, {.round = state.round});
  check_rank(e, client, download);
  e.gate_norm = e.method->prepare(download, e.view(client, state, state.round, memory)).router.gate_norm;
}

namespace {

/// Generated rows are as many as asked for; read ones are as many as there are.
void check_generated_rows(const DataSection& data) {
  constexpr int64_t kRowBytes = 4096;  // text, its tokens, and what both are made from
  const auto available = machine::memory().available;
  EK_CHECK(data.task != "builtin" || data.limit * kRowBytes <= available, kConfig, "data.limit is ", data.limit,
           " rows to generate, about ", machine::bytes_text(data.limit * kRowBytes), " of memory, allowed: up to ",
           available / kRowBytes, ", ", machine::bytes_text(available), " are available");
}

}  // namespace

Shards make_shards(const ExperimentConfig& config, const Tokenizer& tokenizer, const ModelSpec& model) {
  check_positions(config, model);
  check_generated_rows(config.data);
  const auto seed = static_cast<uint64_t>(config.seed);
  const auto set = training_rows(config.data.task, config.data.rows(config.data.limit, seed));
  if (!set.note.empty()) log::warning("[data] ", set.note);
  auto tokenized = tokenize_rows(set.rows, tokenizer, config.data.tokenize_options(model.eos));
  warn_about_cut_rows(tokenized, set.rows.size(), config.data.cutoff);
  const auto labels = labels_of(set.rows, tokenized);
  const auto parts = partition(labels, config.clients.count, config.data.partition, seed);
  Shards shards{
      .examples = {}, .rows = {}, .files = set.files, .cut = tokenized.cut, .without_target = tokenized.without_target};
  deal_out(std::move(tokenized), parts, shards);
  return shards;
}

int64_t active_experts(const ModelSpec& model, double budget, std::string_view who) {
  if (model.num_experts == 0) return 0;
  const auto active = static_cast<int64_t>(std::floor(static_cast<double>(model.top_k) * budget));
  EK_CHECK(active >= 1, kConfig, who, " is ", budget, ": floor(", model.top_k, " experts per token * ", budget,
           ") = 0, allowed: ", 1.0 / static_cast<double>(model.top_k), " or more");
  return active;
}

int64_t client_top_k(const ExperimentConfig& config, const ModelSpec& model, double budget, std::string_view who) {
  if (find_method(config.method.name).family == MethodFamily::kRank) return model.top_k;
  return active_experts(model, budget, who);
}

std::vector<ClientProfile> make_clients(const ExperimentConfig& config, const ModelSpec& model, const Shards& shards) {
  std::vector<ClientProfile> clients;
  for (int64_t id = 0; id < config.clients.count; ++id) {
    const auto i = static_cast<size_t>(id);
    const double budget = config.clients.budgets[i];
    const double examples = shards.examples.empty() ? 0 : static_cast<double>(shards.examples[i].size());
    clients.push_back({.id = id,
                       .budget = budget,
                       .top_k = client_top_k(config, model, budget, concat("clients.budgets[", id, "]")),
                       .rank = config.clients.ranks[i],
                       .examples = examples,
                       .trains = true});
  }
  return clients;
}

namespace {

struct OwnedRow {
  const Example* example;
  int64_t top_k;  ///< K_c of the client that owns it
};
/// Rows that are routed alike, in the order they were drawn, by their K_c.
using RowsByTopK = std::map<int64_t, std::vector<const Example*>>;

RowsByTopK draw_rows(const std::vector<OwnedRow>& rows, int64_t count, RandomStream stream) {
  const auto order = stream.permutation(static_cast<int64_t>(rows.size()));
  RowsByTopK drawn;
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < count; ++i) {
    const auto& row = rows[static_cast<size_t>(order[i])];
    drawn[row.top_k].push_back(row.example);
  }
  return drawn;
}

/// The rows whose gradients a method asks for: one draw from all clients' rows together, or as many from each client,
/// a list of its own for each.
std::vector<RowsByTopK> sample_rows(const Experiment& e, const GradientSample& sample) {
  std::vector<OwnedRow> rows;
  std::vector<RowsByTopK> lists;
  const auto clients = static_cast<int64_t>(e.shards.examples.size());
  for (size_t c = 0; c < e.shards.examples.size(); ++c) {
    for (const auto& example : e.shards.examples[c]) rows.push_back({&example, e.clients[c].top_k});
    if (sample.from == SampleFrom::kPooled) continue;
    lists.push_back(draw_rows(rows, (sample.rows + clients - 1) / clients,
                              {e.seed(), "gradient-rows-client", static_cast<uint64_t>(c)}));
    rows.clear();
  }
  if (sample.from == SampleFrom::kPooled) lists.push_back(draw_rows(rows, sample.rows, {e.seed(), "gradient-rows"}));
  return lists;
}

/// No micro-batch holds rows that are routed differently.
at::Tensor gradient_of(const Experiment& e, const std::string& site, const RowsByTopK& rows, GateNorm gate_norm) {
  at::Tensor sum;
  for (const auto& [top_k, examples] : rows) {
    const auto part = weight_gradient(*e.model, site, e.sites.at(site), examples, e.config.train.batch_size,
                                      {.top_k = top_k, .gate_norm = gate_norm});
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

/// Clients add sums of their own: no micro-batch holds rows of two.
/// \param bytes_up  grows by the clients' sums; null: nobody counts
at::Tensor sum_of_gradients(const Experiment& e, const std::string& site, const GradientSample& sample,
                            int64_t* bytes_up) {
  EK_CHECK(!e.shards.examples.empty(), kConfig, "method ", e.config.method.name,
           " begins with gradients over training rows, and an evaluation has none: train a round first");
  at::Tensor sum;
  for (const auto& rows : sample_rows(e, sample)) {
    const auto part = gradient_of(e, site, rows, sample.gate_norm);
    if (!part.defined()) continue;
    if (bytes_up && sample.from == SampleFrom::kClients) *bytes_up += static_cast<int64_t>(part.nbytes());
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace

int64_t Experiment::max_rank() const {
  return *std::max_element(config.clients.ranks.begin(), config.clients.ranks.end());
}

EvaluationOptions Experiment::evaluation() const {
  auto options = config.evaluate.options(config.data.form);
  if (bert_scorer) options.bert_scorer = &*bert_scorer;
  return options;
}

ClientView Experiment::view(const ClientProfile& client, const ServerState& state, int64_t round,
                            TensorMap& memory) const {
  return {.client = client,
          .sites = sites,
          .common = state.common,
          .scale = scale(),
          .round = round,
          .seed = seed(),
          .memory = memory};
}

ServerView Experiment::server(int64_t* bytes_up) const {
  const auto& spec = model->spec();
  return {.sites = sites,
          .moe_layers = spec.moe_layers,
          .num_experts = spec.num_experts,
          .max_top_k = spec.top_k,
          .rank = max_rank(),
          .scale = scale(),
          .lr = config.train.optimizer.lr,
          .seed = seed(),
          .gradient_sum = [this, bytes_up](const std::string& site, const GradientSample& sample) {
            return sum_of_gradients(*this, site, sample, bytes_up);
          }};
}

Experiment make_experiment(ExperimentConfig config, Purpose purpose) {
  set_arithmetic(config);
  const auto folder = resolve_model_path(config.model.path);
  auto model = load_shape(folder, config.model.dtype);
  auto tokenizer = load_tokenizer(folder);
  check_vocabulary(tokenizer, model->spec(), folder);
  check_method_fits(config.method, model->spec());
  check_ranks(config);
  Experiment e{.config = std::move(config),
               .model_folder = folder,
               .model = std::move(model),
               .tokenizer = std::move(tokenizer),
               .sites = {},
               .method = {},
               .gate_norm = {},
               .shards = {},
               .clients = {},
               .bert_scorer = {}};
  e.sites = e.model->sites(e.config.lora.all_targets(e.model->spec()));
  e.method = e.config.method.make();
  for (double budget : e.config.evaluate.budgets) active_experts(e.model->spec(), budget, "evaluate.budgets");
  if (purpose != Purpose::kEvaluate) e.shards = make_shards(e.config, e.tokenizer, e.model->spec());
  e.clients = make_clients(e.config, e.model->spec(), e.shards);
  if (purpose == Purpose::kForesee) return e;
  if (purpose == Purpose::kTrain) require_memory(memory_plan(e), machine::memory(), "the run");
  e.model = load_model(folder, e.config.model.dtype);
  const auto& bert = e.config.evaluate.bert_score;
  if (!bert.encoder.empty()) e.bert_scorer = BertScorer::load(bert.encoder, bert.options());
  return e;
}

}  // namespace evenkeel
