#include "fed/run/memory_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/system/device.h"
#include "base/system/local_ranks.h"
#include "data/example.h"
#include "fed/config/sampling.h"
#include "fed/round/starting_gradients.h"
#include "models/cost.h"
#include "scoring/generation.h"

namespace evenkeel::fed {
namespace {

constexpr int64_t kFloat = 4;
constexpr int64_t kProgram = int64_t{256} << 20;  // libraries, threads and tokenizer; 150 to 250 MiB were measured

int64_t row_bytes(const Shards& shards) {
  int64_t bytes = 0;
  for (const auto& shard : shards.examples)
    for (const auto& example : shard)
      bytes += static_cast<int64_t>(sizeof(data::Example) + example.ids.capacity() * sizeof(int64_t));
  return bytes;
}

/// Returns the tokens of the `count` longest rows of any client, an upper limit for batches of `count` rows. Rows
/// repeat if a client has fewer.
int64_t longest_batch(const Shards& shards, int64_t count) {
  int64_t most = 0;
  for (const auto& shard : shards.examples) {
    std::vector<int64_t> lengths;
    for (const auto& example : shard) lengths.push_back(static_cast<int64_t>(example.ids.size()));
    if (lengths.empty()) continue;
    const int64_t rows = std::ssize(shard);
    most = std::max(most, count / rows * data::tokens_in(shard) + sum_of_largest(std::move(lengths), count % rows));
  }
  return most;
}

/// Returns an upper limit for the tokens of one forward pass: of a micro-batch, or of several that are merged.
int64_t longest_pass(const Shards& shards, const train::LocalTraining& train) {
  const int64_t step = longest_batch(shards, train.rows_of_step());
  return std::max(longest_batch(shards, train.batch_size), std::min(train.merge_tokens, step));
}

/// Returns the number of rows of that pass, which have the mean length if micro-batches are merged.
int64_t rows_of_pass(const Shards& shards, const train::LocalTraining& train) {
  int64_t rows = 0, tokens = 0;
  for (const auto& shard : shards.examples) rows += std::ssize(shard), tokens += data::tokens_in(shard);
  const int64_t merged = tokens > 0 ? train.merge_tokens * rows / tokens : 0;
  return std::max(train.batch_size, std::min(merged, train.rows_of_step()));
}

int64_t most_experts(const Experiment& e) {
  int64_t most = e.server.model.num_experts > 0 ? 1 : 0;
  for (const auto& client : e.server.clients) most = std::max(most, client.top_k);
  return most;
}

bool on_gpu(const Experiment& e) { return names_gpu(e.server.config->model.device); }

/// Returns whether engine aten computes on the processor.
bool by_operators_of_cpu(const Experiment& e) { return !on_gpu(e) && e.server.config->model.uses_operators(); }

int64_t passing_bytes_of_engine(const Experiment& e, const models::PassShape& pass) {
  return by_operators_of_cpu(e) ? models::passing_bytes_of_operators(e.server.model, pass)
                                : models::passing_bytes(e.server.model, pass);
}

/// Returns the bytes of the activations of a training step on the processor.
int64_t activation_bytes(const Experiment& e, const models::PassShape& pass) {
  const int64_t padded = by_operators_of_cpu(e) ? models::padded_attention_bytes(e.server.model, pass) : 0;
  return models::kept_bytes(e.server.model, pass) + padded + passing_bytes_of_engine(e, pass);
}

/// Returns the bytes of all tensors of the base.
int64_t base_bytes(const Experiment& e) {
  if (e.server.config->model.dtype == models::BaseDtype::kCheckpoint)
    return models::weight_file_bytes(e.server.model_folder);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : e.fabric.context.model->parameters())
    bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// Returns the bytes that the base takes beside the mapped files: all of it if its type differs from the stored one.
int64_t converted_bytes(const Experiment& e, int64_t file_bytes) {
  if (on_gpu(e)) return 0;
  const int64_t bytes = base_bytes(e);
  if (e.server.config->model.uses_operators()) return bytes;  // operators copy the experts into stacked tensors
  if (e.server.config->model.dtype == models::BaseDtype::kCheckpoint) return 0;
  const bool same_width = bytes > file_bytes - file_bytes / 16 && bytes < file_bytes + file_bytes / 16;
  return same_width ? 0 : bytes;
}

/// Returns the bytes of the mapped files. An int8 base is a file of its own. The tensors that are not quantised are
/// still read from the checkpoint. (Quantisation is a separate run, whose pages the system can drop.)
int64_t mapped_bytes(const Experiment& e, int64_t file_bytes) {
  if (e.server.config->model.base_format == models::BaseFormat::kStored) return file_bytes;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : e.fabric.context.model->parameters())
    bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// Returns the largest number of clients in a round.
int64_t most_participants(const Experiment& e) {
  const int64_t all = std::ssize(e.server.clients);
  if (e.server.config->privacy.sampling == PrivacySampling::kPoisson) return all;
  return drawn_clients(all, e.server.config->clients.participation);
}

int64_t largest_adapter(const Experiment& e) { return adapter_bytes(e.server, e.server.max_rank()); }

using Parts = std::vector<models::MemoryPart>;
const std::string kAdapterKeys = "lora.rank or lora.targets";

/// Returns the memory during a training step of the clients. \param adapter  bytes of one copy of the largest adapter
Parts training_moment(const Experiment& e, int64_t adapter) {
  if (on_gpu(e))
    return {{"a client's adapters, its task in bytes, and two replies that are written", 6 * adapter, kAdapterKeys}};
  const int64_t tokens = longest_pass(e.fabric.shards, e.server.config->train);
  const models::PassShape pass{.tokens = tokens,
                               .targets = tokens,
                               .top_k = most_experts(e),
                               .threads = std::max<int64_t>(1, e.server.config->threads),
                               .sequences = rows_of_pass(e.fabric.shards, e.server.config->train),
                               .longest = longest_batch(e.fabric.shards, 1)};
  const int64_t clients = std::min(e.server.config->clients.parallel, most_participants(e));
  const std::string of_each = clients > 1 ? concat(" of each of ", clients, " clients") : "";
  const std::string fewer = clients > 1 ? ", clients.parallel" : "";
  // The five copies are the adapter, its gradient, two moments, and gradients before accumulation together with the
  // method's edits. A task is encoded as adapters and method data of the same size; a reply has the adapters only.
  return {{concat("a client's adapters, gradients and moments", of_each), clients * 5 * adapter, kAdapterKeys + fewer},
          {concat("a client's task and reply in bytes", of_each), clients * 3 * adapter, kAdapterKeys + fewer},
          {concat("activations of micro-batches of up to ", tokens, " tokens at once", of_each),
           clients * activation_bytes(e, pass), concat("train.batch_size, train.merge_tokens or data.cutoff", fewer)}};
}

/// Returns the tokens of the longest prompt. A task with contexts can fill all positions; other prompts are about as
/// long as a training row.
int64_t prompt_tokens(const Experiment& e) {
  const auto& evaluate = e.server.config->evaluate;
  const int64_t longest = std::max<int64_t>(0, e.server.model.max_positions - evaluate.max_new_tokens);
  const auto has_documents = [&](const std::string& task) {
    return data::find_task_family(data::find_task(task, e.server.config.rows()).family).in_context;
  };
  if (std::none_of(evaluate.tasks.begin(), evaluate.tasks.end(), has_documents))
    return std::min(longest, longest_batch(e.fabric.shards, 1));
  return evaluate.cutoff > 0 ? std::min(evaluate.cutoff, longest) : longest;
}

/// Returns the memory of an evaluation on `device`: a batch of prompts in its largest pass, and all of their caches.
Parts evaluation_moment(const Experiment& e, int64_t adapter, c10::Device device) {
  const auto& spec = e.server.model;
  const auto& evaluate = e.server.config->evaluate;
  const int64_t prompt = prompt_tokens(e), limit = evaluate.limit > 0 ? evaluate.limit : evaluate.batch_size;
  const int64_t prompts = std::min(evaluate.batch_size, limit);
  const int64_t beams = evaluate.decode == scoring::Decode::kBeam4 ? 4 : 1, copies = prompts * beams;
  const int64_t most = static_cast<int64_t>(std::min(evaluate.cache_gib * 0x1p30, 0x1p62));
  const auto cache_of = [&](int64_t count) {
    const scoring::PromptSizes sizes{.count = count, .tokens = count * prompt, .longest = prompt};
    const int64_t tokens =
        scoring::cached_tokens(sizes, evaluate.max_new_tokens, beams, device, e.server.config->model.compute().engine);
    return models::cache_bytes(spec, 1, tokens, evaluate.cache);
  };
  const models::PassShape pass{.tokens = std::min(prompt * prompts, scoring::kPassTokens + prompt),
                               .targets = copies,
                               .top_k = most_experts(e),
                               .threads = std::max<int64_t>(1, e.server.config->threads)};
  const int64_t logits = 3 * kFloat * copies * spec.vocab_size;
  return {{"the adapters of an evaluation, and its task in bytes", 3 * adapter, kAdapterKeys},
          {concat("an evaluation of ", prompts, " prompts at once"),
           std::min(cache_of(prompts), std::max(cache_of(1), most)) + passing_bytes_of_engine(e, pass) + logits,
           "evaluate.batch_size, evaluate.cache_gib or evaluate.max_new_tokens"}};
}

/// Returns the rank of what is merged into the base after `rounds` rounds, as if no site were too small for it.
int64_t merged_rank(const Experiment& e, int64_t rounds) {
  const bool changes = methods::find_method(e.server.config->method.name).changes_base;
  return changes && rounds > 0 ? rounds * most_participants(e) * e.server.max_rank() : 0;
}

/// Returns the bytes of what is merged into the base after `rounds` rounds: factors in the transport type, or a dense
/// float32 matrix for a site of full rank (docs/decisions/0014-base-changing-methods.md,
/// 0049-the-server-at-full-size.md).
int64_t merged_bytes(const Experiment& e, int64_t rounds) {
  const auto& config = e.server.config;
  const auto rank = static_cast<double>(merged_rank(e, rounds));
  if (rank == 0) return 0;
  const double wire = config->train.transport_dtype == lora::TransportDtype::kBFloat16 ? 2 : kFloat;
  double bytes = 0;
  for (const auto& [name, site] : e.server.sites) {
    const auto experts = static_cast<double>(std::max<int64_t>(1, site.experts)), in = static_cast<double>(site.in),
               out = static_cast<double>(site.out);
    bytes += rank < std::min(in, out) ? wire * experts * rank * (in + out) : kFloat * (experts * in * out + in * in);
  }
  return static_cast<int64_t>(std::min(bytes, 0x1p62));
}

constexpr std::string_view kMerged = "what the method merges into the base",
                           kMergedKeys = "train.rounds, clients.count or lora.rank";

/// Adds what clients of the last round hold: the merges of all rounds before, and the last of them again in their task.
Parts with_merged(const Experiment& e, Parts parts) {
  const int64_t rounds = e.server.config->train.rounds;
  const int64_t bytes = merged_bytes(e, rounds - 1) + (rounds > 1 ? merged_bytes(e, 1) : 0);
  if (bytes > 0) parts.push_back({std::string(kMerged), bytes, std::string(kMergedKeys)});
  return parts;
}

/// Returns the memory of a sum of hidden uploads: its integers with masks and without, and as float32 the changes and
/// what they are added to. (A client's summand comes after its training, which takes more.)
Parts hidden_sum(const Experiment& e) {
  const auto& secure = e.server.config->secure_aggregation;
  if (!secure.hides_uploads()) return {};
  return {{"the sum of hidden uploads", (2 * secure.bits / (8 * kFloat) + 2) * largest_adapter(e),
           "secure_aggregation.bits, " + kAdapterKeys}};
}

/// Returns the memory of the sums of gradients that some methods begin with.
Parts starting_moment(const Experiment& e) {
  if (!e.server.config->method.entry().asks_gradients) return {};
  return {{"the gradients of a layer that the method begins with", starting_gradient_bytes(e.server.sites),
           "lora.targets"}};
}

/// Returns the memory of an aggregation, which holds the merged base change before and after the last round.
Parts aggregation_moment(const Experiment& e) {
  const int64_t rounds = e.server.config->train.rounds;
  auto parts = hidden_sum(e);
  parts.push_back({concat(kMerged, ", before and after the last round"),
                   merged_bytes(e, rounds - 1) + merged_bytes(e, rounds), std::string(kMergedKeys)});
  return parts;
}

/// Returns the expert factors that a pass of engine aten packs, and the copies of four layers from which it packs them
/// (nn/aten_engine/packed_factors.h). A stack of `parts` projections has A [E, ranks, in] and B [E, parts out, ranks].
Parts packed_factors(const Experiment& e) {
  const auto inner = e.server.config->model.compute().inner;
  const int64_t merged = merged_rank(e, e.server.config->train.rounds - 1);
  double bytes = 0;
  for (const auto& [name, site] : e.server.sites) {
    const int64_t rank = e.server.max_rank() + (merged < std::min(site.in, site.out) ? merged : site.in);
    bytes += static_cast<double>(at::elementSize(inner)) * static_cast<double>(site.experts * rank) *
             static_cast<double>(site.in + site.fused.parts * site.out);
  }
  const auto layers = static_cast<double>(std::max<size_t>(1, e.server.model.moe_layers.size()));
  bytes *= 1 + 2 * std::min(4.0, layers) / layers;
  if (bytes == 0) return {};
  return {{"the factors of the experts, packed for their products", static_cast<int64_t>(std::min(bytes, 0x1p62)),
           merged > 0 ? std::string(kMergedKeys) : kAdapterKeys}};
}

/// Adds what main memory holds beside a pass of a client or an evaluation.
Parts beside_pass(const Experiment& e, Parts parts) {
  if (by_operators_of_cpu(e))
    for (auto& part : packed_factors(e)) parts.push_back(std::move(part));
  return with_merged(e, std::move(parts));
}

bool records_passes(const Experiment& e) { return e.server.config->model.graphs == GraphsChoice::kOn; }

/// Returns the tokens of a padded pass (data::padded()), at most.
int64_t padded_tokens(int64_t tokens) { return (tokens / train::kPaddingStep + 2) * train::kPaddingStep; }

/// Returns how many sizes of clients' adapters there are, at most as many as are kept.
int64_t sizes_of_clients(const Experiment& e) {
  std::set<int64_t> ranks;
  for (const auto& client : e.server.clients) ranks.insert(client.rank);
  return std::min(std::ssize(ranks), static_cast<int64_t>(train::kMostShapesOfClients));
}

/// Returns what recorded passes hold beside what every step needs: the activations of the largest in a pool of their
/// own, and the adapters and gradients of clients of each size (train/step_graphs.h).
Parts recorded_passes(const Experiment& e, int64_t adapter, int64_t activations) {
  if (!records_passes(e)) return {};
  return {{"recorded passes, and what stays in place for them", activations + 2 * sizes_of_clients(e) * adapter,
           "train.batch_size or train.merge_tokens, or --set model.graphs=off"}};
}

/// Returns the memory of training on a GPU.
Parts device_training_moment(const Experiment& e, int64_t adapter) {
  const int64_t longest = longest_pass(e.fabric.shards, e.server.config->train),
                tokens = records_passes(e) ? padded_tokens(longest) : longest;
  const models::PassShape pass{.tokens = tokens, .targets = longest, .top_k = most_experts(e), .threads = 1};
  const int64_t activations =
      models::kept_bytes_of_operators(e.server.model, pass) + models::passing_bytes(e.server.model, pass);
  Parts parts{{"a client's adapters, gradients, moments and what its method sends", 5 * adapter, kAdapterKeys},
              {concat("activations of micro-batches of up to ", tokens, " tokens at once"), activations,
               "train.batch_size, train.merge_tokens or data.cutoff"}};
  const auto recorded = recorded_passes(e, adapter, activations);
  parts.insert(parts.end(), recorded.begin(), recorded.end());
  return parts;
}

/// Returns the memory of BERTScore's encoder, unless the experiment has loaded it.
Parts encoder(const Experiment& e) {
  const auto& folder = e.server.config->evaluate.bert_score.encoder;
  if (folder.empty() || e.fabric.context.bert_scorer) return {};
  return {{"the encoder of BERTScore", models::weight_file_bytes(folder), "evaluate.bert_score.encoder"}};
}

int64_t sum(const Parts& parts) { return models::MemoryPlan{parts, 0}.needed(); }

/// Returns what is in memory all the time: program, server and base.
models::MemoryPlan standing(const Experiment& e) {
  const int64_t file_bytes = models::weight_file_bytes(e.server.model_folder),
                converted = converted_bytes(e, file_bytes);
  models::MemoryPlan plan{.parts = {{"the program and its tokenizer", kProgram, ""},
                                    {"the server's adapters, and as much for what a method keeps beside them",
                                     2 * largest_adapter(e), kAdapterKeys}},
                          .mapped = converted > 0 ? 0 : mapped_bytes(e, file_bytes)};
  if (converted > 0)
    plan.parts.push_back({"the base beside its file, in another type or in stacks", converted, "model.dtype"});
  return plan;
}

/// Returns the memory of an evaluation beside what stands.
Parts scoring_moment(const Experiment& e, int64_t adapter) {
  if (on_gpu(e)) return {{"the adapters of an evaluation, and its task in bytes", 3 * adapter, kAdapterKeys}};
  return evaluation_moment(e, adapter, c10::kCPU);
}

/// Adds the largest of these moments, which do not happen at the same time.
models::MemoryPlan with_worst(models::MemoryPlan plan, const std::vector<Parts>& moments) {
  const auto& worst =
      *std::max_element(moments.begin(), moments.end(), [](const auto& x, const auto& y) { return sum(x) < sum(y); });
  plan.parts.insert(plan.parts.end(), worst.begin(), worst.end());
  return plan;
}

}  // namespace

int64_t adapter_bytes(const Server& server, int64_t rank) {
  return kFloat * models::lora_parameters(server.sites, rank);
}

int64_t sum_of_largest(std::vector<int64_t> values, int64_t count) {
  const auto end = values.begin() + count;
  std::partial_sort(values.begin(), end, values.end(), std::greater<>());
  return std::accumulate(values.begin(), end, int64_t{0});
}

models::MemoryPlan device_memory_plan(const Experiment& e) {
  const int64_t adapter = largest_adapter(e);
  models::MemoryPlan plan{.parts = {models::device_libraries(), {"the base", base_bytes(e), "model.dtype"}}};
  const auto training = with_merged(e, device_training_moment(e, adapter)),
             scoring = with_merged(e, evaluation_moment(e, adapter, c10::kCUDA));
  for (const auto& parts : {packed_factors(e), encoder(e), sum(training) < sum(scoring) ? scoring : training})
    plan.parts.insert(plan.parts.end(), parts.begin(), parts.end());
  return plan;
}

void require_device_memory(const Experiment& e, c10::Device device) {
  models::require_device_memory(device_memory_plan(e), device, "the run",
                                ranks_sharing(e.server.config->model.device, local_ranks()));
}

int64_t merged_bytes_of_round(const Experiment& e) { return merged_bytes(e, 1); }

models::MemoryPlan memory_plan(const Experiment& e) {
  const int64_t adapter = largest_adapter(e);
  auto plan = standing(e);
  plan.parts.insert(plan.parts.begin() + 1, {"training rows", row_bytes(e.fabric.shards), "data.limit"});
  return with_worst(std::move(plan),
                    {beside_pass(e, training_moment(e, adapter)), beside_pass(e, scoring_moment(e, adapter)),
                     aggregation_moment(e), starting_moment(e)});
}

models::MemoryPlan server_memory_plan(const Experiment& e) {
  return with_worst(standing(e), {beside_pass(e, scoring_moment(e, largest_adapter(e))), aggregation_moment(e)});
}

}  // namespace evenkeel::fed
