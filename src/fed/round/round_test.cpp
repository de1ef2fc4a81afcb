#include "fed/round/round.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/plain/files.h"
#include "fed/round/payload_check.h"
#include "fed/round/round_measures.h"
#include "fed/round/starting_adapter.h"
#include "fed/round/starting_gradients.h"
#include "fed/testing.h"
#include "lora/algebra.h"
#include "train/weight_gradient.h"

namespace evenkeel::fed {
namespace {

class RoundTest : public testing::SmallRun {
 protected:
  /// Runs the round after `now`. The clients of `e` may have been in another state before.
  static RoundResult play(Experiment& e, const Snapshot& now, std::string_view name) {
    RunProgress progress(e.server, now.state.round);
    restore_clients(e.server, e.fabric, now);
    return run_round(e.server, e.fabric, now, RoundJournal(root() / name), progress);
  }

  /// Copies the files of one client's upload to another journal.
  static void hand_over(std::string_view from, std::string_view to, int64_t client) {
    fs::create_directories(root() / to);
    for (const auto& entry : fs::directory_iterator(root() / from))
      if (entry.path().filename().string().starts_with(concat(client, ".")))
        fs::copy_file(entry.path(), root() / to / entry.path().filename());
  }
};

TEST_F(RoundTest, ClientOrderAndInterruptionDoNotChangeResults) {
  auto e = experiment("ub-smoe");
  const auto whole = play(e, beginning(e), "whole");
  for (int64_t late = 0; late < 3; ++late) {
    const std::string name = concat("all-but-", late);
    for (int64_t client = 0; client < 3; ++client)
      if (client != late) hand_over("whole", name, client);
    const auto pieced = play(e, beginning(e), name);
    const auto upload = concat(late, ".upload.safetensors");
    EXPECT_EQ(sha256_file(root() / name / upload), sha256_file(root() / "whole" / upload));
    testing::expect_same(pieced.next.state, whole.next.state);
    EXPECT_EQ(testing::without_seconds(pieced.record), testing::without_seconds(whole.record));
  }
}

TEST_F(RoundTest, ARoundChangesAdaptersAndNotTheBase) {
  auto e = experiment("fedit");
  std::map<std::string, at::Tensor> base;
  for (const auto& [name, tensor] : e.fabric.context.model->parameters()) base[name] = tensor.clone();
  const auto result = play(e, beginning(e), "moves");
  for (const auto& [name, tensor] : e.fabric.context.model->parameters())
    EXPECT_TRUE(at::equal(base.at(name), tensor)) << name;
  const auto begun = beginning(e);
  for (const auto& [site, factors] : result.next.state.global.adapters)
    EXPECT_FALSE(at::equal(factors.b, begun.state.global.adapters.at(site).b)) << site;
  EXPECT_EQ(result.next.state.round, 1);
}

TEST_F(RoundTest, NonFiniteUploadsAreRefusedForEveryKindOfMethod) {
  for (const std::string name : {"fedit", "flora", "fedex-lora"}) {
    auto e = experiment(name);
    const auto begun = beginning(e);
    const auto round = e.server.draw(begun.state);
    std::vector<methods::ClientUpdate> updates;
    for (const auto& client : round.participants)
      updates.push_back({client, {.adapters = lora::make_adapters(e.server.sites, client.rank, 1.0, 3)}, 1});
    EXPECT_EQ(e.server.aggregate(begun.state, round, updates).round, 1);
    updates[1].payload.adapters.begin()->second.b.fill_(NAN);
    EXPECT_THROW(e.server.aggregate(begun.state, round, updates), Error) << name;
  }
}

TEST_F(RoundTest, ASnapshotFromDiskContinuesLikeTheOneInMemory) {
  auto e = experiment("ub-smoe");
  const auto first = play(e, beginning(e), "first");
  const Checkpoint checkpoint(root() / "checkpoint");
  checkpoint.begin();
  checkpoint.commit(first.next, sealed(record::write(first.record)));
  const auto from_memory = play(e, first.next, "second-memory");
  const auto from_disk = play(e, checkpoint.read().snapshot, "second-disk");
  testing::expect_same(from_disk.next.state, from_memory.next.state);
}

/// Returns the FLOPs of a client's training of the small model: 4 per multiply-add of frozen weights, 6 per one
/// of attention scores and of factors.
double flops_by_hand(const ClientOfRound& client) {
  const int64_t length = client.tokens / (client.steps * 2 * 2), k = client.top_k;
  const int64_t frozen = 13872 + 2880 * k, scores = 96 * length, factors = 1194 + 792 * k;
  return static_cast<double>(client.tokens * (4 * frozen + 6 * scores + 6 * factors));
}

TEST_F(RoundTest, TheRecordHasTheCountsOfTheRound) {
  auto e = experiment("ub-smoe");
  const auto record = play(e, beginning(e), "record").record;
  EXPECT_EQ(record.round, 1);
  EXPECT_EQ(record.gate_norm, nn::GateNorm::kRenormSelected);
  EXPECT_EQ(record.gates_sum_to_one, true);
  int64_t up = 0;
  double flops = 0;
  std::set<int64_t> top_ks;
  const auto expect_sum = [](const Traffic& parts, int64_t bytes) {
    for (const auto& [name, part] : parts) bytes -= part;
    EXPECT_EQ(bytes, 0);
  };
  const auto expect_parts = [&](const RoundMeasures& measures) {
    expect_sum(measures.bytes_up_parts, measures.bytes_up);
    expect_sum(measures.bytes_down_parts, measures.bytes_down);
  };
  expect_parts(record);
  for (const auto& client : record.clients) {
    const auto file = root() / "record" / concat(client.id, ".upload.safetensors");
    EXPECT_EQ(client.bytes_up, static_cast<int64_t>(fs::file_size(file)));
    EXPECT_DOUBLE_EQ(client.experts_per_token, static_cast<double>(client.top_k));
    EXPECT_EQ(client.flops, flops_by_hand(client)) << "K = " << client.top_k;
    top_ks.insert(client.top_k);
    flops += client.flops;
    up += client.bytes_up;
    expect_parts(client);
    EXPECT_GT(client.bytes_down_parts.at("pseudo_grad_a"), client.bytes_down_parts.at("phi"));
  }
  EXPECT_EQ(record.bytes_up, up);
  EXPECT_EQ(record.flops, flops);
  EXPECT_EQ(top_ks, (std::set<int64_t>{1, 2, 4}));
  ASSERT_TRUE(record.experts);
  EXPECT_EQ(record.experts->layers.size(), 2u);
  EXPECT_EQ(record.experts->utilization[0].size(), 7u);
}

/// Returns what a client measured whose tokens chose the experts of the two layers as often as given.
ClientRecord measured(int64_t tokens, const std::vector<int64_t>& first, const std::vector<int64_t>& second) {
  ClientRecord record;
  record.steps = 1;
  record.tokens = tokens;
  record.counts["model.layers.0.mlp"] = {.router_logits = {}, .counts = at::tensor(first, at::kLong), .tokens = tokens};
  record.counts["model.layers.1.mlp"] = {
      .router_logits = {}, .counts = at::tensor(second, at::kLong), .tokens = tokens};
  return record;
}

// u is 1/2, 1/2, 1/2, 1/2, 0, 0, 0 in the first layer and 1, 1/2, 1/4, 19/80, 1/80, 0, 0 in the second. A tenth of the
// balanced share is 1/35.
TEST_F(RoundTest, TheRecordMeasuresTheUseOfExpertsByLayerAndInAllLayers) {
  auto e = experiment("fedit");
  const std::vector<ClientRecord> clients{measured(40, {40, 40, 0, 0, 0, 0, 0}, {40, 40, 0, 0, 0, 0, 0}),
                                          measured(60, {20, 20, 40, 40, 0, 0, 0}, {60, 20, 20, 19, 1, 0, 0})};
  const methods::RoundView round{.participants = {e.server.clients[0], e.server.clients[2]}, .weights = {0.25, 0.75}};
  const OtherTraffic other{};
  const std::optional<SummedReport> hidden;
  const auto use = round_record(e.server, round, {clients, other, hidden}, beginning(e).state, {}).experts.value();
  EXPECT_NEAR(use.entropy.at(0), std::log(4), 1e-8);
  EXPECT_NEAR(use.entropy.at(1), 1.23782197, 1e-8);
  EXPECT_NEAR(use.gini.at(0), 3.0 / 7, 1e-8);
  EXPECT_NEAR(use.gini.at(1), 0.60535714, 1e-8);
  EXPECT_EQ(use.dead_experts, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(use.nearly_dead_experts, (std::vector<int64_t>{3, 3}));
  EXPECT_NEAR(use.entropy_mean, 1.31205817, 1e-8);
  EXPECT_NEAR(use.entropy_std, 0.07423619, 1e-8);
  EXPECT_NEAR(use.entropy_joint, 2.00520535, 1e-8);
  EXPECT_NEAR(use.entropy_unnormalized, 2.47564394, 1e-8);
  EXPECT_NEAR(use.gini_mean, 0.51696429, 1e-8);
}

TEST_F(RoundTest, TheRecordReadsBackIdentically) {
  auto e = experiment("ub-smoe");
  const auto text = record::write(play(e, beginning(e), "record-bytes").record).dump();
  const Json json = parse_json(text, "here");
  const auto again = record::read<RoundRecord>({json, "here"});
  EXPECT_EQ(record::write(again).dump(), text);
  EXPECT_EQ(again.clients.at(2).id, 2);
  EXPECT_FALSE(again.diagnostics.lists.empty());
  EXPECT_FALSE(again.lost) << "nobody was lost";
}

TEST_F(RoundTest, ClientsThatWereNotDrawnReceiveTheBaseChange) {
  auto e = experiment("flora", Purpose::kTrain, "clients.participation=0.34");
  const auto first = play(e, beginning(e), "flora-1");
  const auto second = play(e, first.next, "flora-2");
  const lora::Payload change{.base_delta = first.next.state.global.base_delta};
  const int64_t bytes = lora::payload_size(change, lora::TransportDtype::kFloat32);
  EXPECT_FALSE(first.record.bytes_down_parts.contains("base_delta_idle"));
  ASSERT_EQ(second.record.clients.size(), 1u);
  EXPECT_EQ(second.record.clients[0].bytes_down, bytes);
  EXPECT_EQ(second.record.bytes_down_parts.at("base_delta_idle"), 2 * bytes);
  EXPECT_EQ(second.record.bytes_down, 3 * bytes);
}

TEST_F(RoundTest, TrafficCountsFixedFactorsOncePerClient) {
  auto e = experiment("ffa-lora", Purpose::kTrain, "clients.participation=0.67");
  const auto begun = beginning(e);
  const auto first = play(e, begun, "ffa-1");
  const auto second = play(e, first.next, "ffa-2");
  const int64_t fixed = 3 * lora::payload_size({.adapters = begun.state.common.fixed}, lora::TransportDtype::kFloat32);
  EXPECT_EQ(first.record.bytes_down_parts.at("fixed_factors"), fixed);
  EXPECT_FALSE(second.record.bytes_down_parts.contains("fixed_factors"));
  EXPECT_EQ(first.record.bytes_down, second.record.bytes_down + fixed);
  EXPECT_FALSE(first.record.bytes_down_parts.contains("base_delta_idle"));
}

TEST_F(RoundTest, TrafficCountsGradientSumsOfAFederatedStartOncePerClient) {
  auto e = experiment("fed-sb", Purpose::kTrain, "method.fed-sb.init=federated");
  const auto first = play(e, beginning(e), "sb-1");
  const auto second = play(e, first.next, "sb-2");
  int64_t weights = 0;
  for (const auto& [site, shape] : e.server.sites)
    weights += std::max<int64_t>(shape.experts, 1) * shape.in * shape.out;
  const int64_t sums = 3 * 4 * weights;  // three clients, float32
  const auto sent = first.record.bytes_up_parts.at("gradient_sums");
  EXPECT_GE(sent, sums);
  EXPECT_LT(sent, sums + 3 * 256 * static_cast<int64_t>(e.server.sites.size())) << "a message's header is short";
  EXPECT_FALSE(second.record.bytes_up_parts.contains("gradient_sums"));
  EXPECT_EQ(first.record.bytes_up, second.record.bytes_up + sent);
  auto pooled = experiment("fed-sb");
  EXPECT_EQ(beginning(pooled).opening.up["gradient_sums"], 0);
}

TEST_F(RoundTest, EvaluationRoutesByBudgetAndTrainsNothing) {
  auto e = experiment("ub-smoe", Purpose::kEvaluate);
  const auto state = beginning(e).state;
  EXPECT_EQ(setup_at(e, state, 0.25).router.top_k, 1);
  EXPECT_EQ(setup_at(e, state, 1.0).router.top_k, 4);
  EXPECT_TRUE(setup_at(e, state, 1.0).extra_trainables.empty());
  EXPECT_THROW(setup_at(e, state, 0.2), Error);
}

TEST_F(RoundTest, ErrorsNameRoundClientAndMethod) {
  auto e = experiment("fedit");
  e.fabric.shards.examples[1].clear();
  try {
    play(e, beginning(e), "error");
    FAIL() << "an empty shard was trained on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("round 1, client 1, method fedit"), std::string::npos) << error.what();
  }
}

/// Returns the gradient of a frozen weight over whole shards, as one micro-batch, routed by `router`.
at::Tensor gradient_over(const Experiment& e, const std::string& site, const nn::RouterOptions& router,
                         std::initializer_list<size_t> clients) {
  std::vector<const data::Example*> rows;
  for (const size_t c : clients)
    for (const auto& row : e.fabric.shards.examples[c]) rows.push_back(&row);
  return train::weight_gradients(*e.fabric.context.model, {{site, e.server.sites.at(site)}}, {rows, 50, router})
      .at(site);
}

double apart(const at::Tensor& x, const at::Tensor& y) { return ((x - y).abs().max() / y.abs().max()).item<double>(); }

/// Saves a base with experts that are large enough for vendor kernels.
fs::path wide_model(const fs::path& root) {
  Json config = Json::parse(testing::kSmallModel);
  config.update({{"hidden_size", 256},
                 {"intermediate_size", 1030},
                 {"num_hidden_layers", 1},
                 {"num_experts", 3},
                 {"num_experts_per_tok", 2},
                 {"initializer_range", 0.05}});
  write_file_atomic(root / "wide.json", config.dump());
  models::save_model(*models::init_model(root / "wide.json", models::BaseDtype::kBFloat16, 1), root / "wide");
  fs::copy_file(root / "model" / "tokenizer.json", root / "wide" / "tokenizer.json");
  return root / "wide";
}

TEST_F(RoundTest, ComputeDtypeAppliesToTrainingGradientSumsAndEvaluation) {
  const auto model = concat("model.path=\"", wide_model(root()).string(), "\"");
  const std::string site = "model.layers.0.mlp.experts.down_proj";
  std::vector<lora::AdapterState> trained;
  std::vector<at::Tensor> gradients;
  for (const std::string dtype : {"float32", "bfloat16"}) {
    auto e = experiment("fedit", Purpose::kTrain, concat("model.compute_dtype=", dtype),
                        {model, "clients.budgets=[1.0, 1.0, 1.0]", "evaluate.budgets=[1.0]", "data.limit=6"});
    int64_t bytes_up = 0;
    gradients.push_back(StartingGradients(e.server, e.fabric, bytes_up)(site, {.rows = 6}));
    trained.push_back(play(e, beginning(e), concat("computed-", dtype)).next.state.global.adapters);
    EXPECT_EQ(e.fabric.context.forward({}).compute.products,
              nn::MatmulTable(dtype == "bfloat16" ? nn::MatmulKernel::kBf16Dot : nn::MatmulKernel::kFp32Exact));
  }
  EXPECT_FALSE(at::equal(trained[0].at(site).b, trained[1].at(site).b));
  EXPECT_FALSE(at::equal(gradients[0], gradients[1]));
  EXPECT_LT(apart(gradients[1], gradients[0]), 0.2);
}

// The micro-batch is as large as all rows. A mixture of clients would therefore be one mean instead of a sum of three.
TEST_F(RoundTest, AFederatedStartAddsTheClientsGradientSums) {
  auto e = experiment("fed-sb", Purpose::kTrain, "train.batch_size=50");
  for (auto& client : e.server.clients) client.top_k = 4;
  e.fabric.clients = e.server.clients;
  const std::string site = "model.layers.0.self_attn.q_proj";
  int64_t bytes_up = 0;
  StartingGradients all(e.server, e.fabric, bytes_up);
  const auto right =
      gradient_over(e, site, {}, {0}) + gradient_over(e, site, {}, {1}) + gradient_over(e, site, {}, {2});
  const auto pooled = gradient_over(e, site, {}, {0, 1, 2});
  EXPECT_LT(apart(all(site, {.rows = 1000, .from = methods::SampleFrom::kClients}), right), 1e-5);
  EXPECT_LT(apart(all(site, {.rows = 1000}), pooled), 1e-5);
  EXPECT_GT(apart(pooled, right), 1e-2);
  EXPECT_FALSE(all(site, {.rows = 3, .from = methods::SampleFrom::kClients}).equal(all(site, {.rows = 3})));
}

// Clients 0 and 1 use one expert per token. Client 2 uses all four of the checkpoint.
TEST_F(RoundTest, AFederatedStartRoutesRowsByTheirClientsBudgets) {
  auto e = experiment("fed-sb", Purpose::kTrain, "train.batch_size=50");
  e.server.clients[1].top_k = e.server.clients[0].top_k;
  e.fabric.clients = e.server.clients;
  const std::string site = "model.layers.1.mlp.experts.up_proj";
  int64_t bytes_up = 0;
  StartingGradients all(e.server, e.fabric, bytes_up);
  for (const auto gate_norm : {nn::GateNorm::kCheckpoint, nn::GateNorm::kRenormSelected}) {
    const nn::RouterOptions one{.top_k = 1, .gate_norm = gate_norm}, four{.top_k = 4, .gate_norm = gate_norm};
    const auto pooled = gradient_over(e, site, one, {0, 1}) + gradient_over(e, site, four, {2});
    e.use(e.server.config.with([&](ExperimentConfig& values) { values.method.gate_norm = gate_norm; }));
    EXPECT_LT(apart(all(site, {.rows = 1000}), pooled), 1e-5);
    const auto federated =
        gradient_over(e, site, one, {0}) + gradient_over(e, site, one, {1}) + gradient_over(e, site, four, {2});
    EXPECT_LT(apart(all(site, {.rows = 1000, .from = methods::SampleFrom::kClients}), federated), 1e-5);
    EXPECT_GT(apart(gradient_over(e, site, {}, {0, 1, 2}), pooled), 1e-2) << "routing makes no difference";
  }
}

/// A fabric in which given clients fail.
class Lossy : public Fabric {
 public:
  Lossy(Fabric& fabric, std::set<int64_t> lost) : fabric_(fabric), lost_(std::move(lost)) {}
  void announce(std::span<const methods::ClientProfile> to, const StateUpdate& news) override {
    fabric_.announce(to, news);
  }
  void exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) override {
    ++exchanges;
    std::vector<methods::ClientProfile> there;
    for (const auto& client : to) {
      asked.push_back(client.id);
      if (lost_.contains(client.id))
        exchange.on_lost(client.id, "its node burned down");
      else
        there.push_back(client);
    }
    fabric_.exchange(there, exchange);
  }
  int exchanges = 0;
  std::vector<int64_t> asked{};

 private:
  Fabric& fabric_;
  std::set<int64_t> lost_;
};

TEST_F(RoundTest, AFederatedStartComputesGradientsOfALayerInOnePass) {
  auto e = experiment("fed-sb");
  Lossy fabric(e.fabric, {});
  const auto state = initial_state(e.server, fabric);
  EXPECT_EQ(fabric.exchanges, 2) << "the model has two layers";
  EXPECT_EQ(state.global.adapters.size(), e.server.sites.size());
}

TEST_F(RoundTest, AFederatedStartContinuesWithoutLostClients) {
  auto e = experiment("fed-sb", Purpose::kTrain, "train.batch_size=50");
  for (auto& client : e.server.clients) client.top_k = 4;
  e.fabric.clients = e.server.clients;
  const methods::GradientSample sample{.rows = 1000, .from = methods::SampleFrom::kClients};
  int64_t bytes_up = 0;
  Lossy fabric(e.fabric, {1});
  StartingGradients sums(e.server, fabric, bytes_up);
  for (const std::string site : {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.experts.up_proj"})
    EXPECT_LT(apart(sums(site, sample), gradient_over(e, site, {}, {0}) + gradient_over(e, site, {}, {2})), 1e-5);
  EXPECT_EQ(fabric.asked, (std::vector<int64_t>{0, 1, 2, 0, 2}));
  Lossy nobody(e.fabric, {0, 1, 2});
  EXPECT_NE(testing::refusal([&] {
              StartingGradients(e.server, nobody, bytes_up)("model.layers.0.self_attn.q_proj", sample);
            }).find("0 of 3 clients are left"),
            std::string::npos);
}

/// A fabric whose clients answer without an upload.
class Empty : public Fabric {
 public:
  void announce(std::span<const methods::ClientProfile>, const StateUpdate&) override {}
  void exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) override {
    for (const auto& client : to) try {
        exchange.check(client, {.client = client.id});
        exchange.on_reply({.client = client.id});
      } catch (const Error& error) {
        exchange.on_lost(client.id, error.what());
      }
  }
};

TEST_F(RoundTest, AFederatedStartRefusesClientsThatSendNoGradients) {
  auto e = experiment("fed-sb");
  Empty fabric;
  int64_t bytes_up = 0;
  const methods::GradientSample sample{.rows = 1000, .from = methods::SampleFrom::kClients};
  const auto refused = [&] {
    return testing::refusal(
        [&] { StartingGradients(e.server, fabric, bytes_up)(e.server.sites.begin()->first, sample); });
  };
  EXPECT_NE(refused().find("0 of 3 clients are left"), std::string::npos) << refused();
  for (auto& client : e.server.clients) client.examples = 0;
  EXPECT_NE(refused().find("no client has a row for the gradient of"), std::string::npos) << refused();
}

// In bfloat16 a value of the base change takes two bytes on server and clients. The last round's part is stored once.
TEST_F(RoundTest, BaseChangeIsStoredInTheTransportTypeAndItsLastPartOnce) {
  for (const std::string method : {"flora", "fedex-lora"}) {
    auto e = experiment(method, Purpose::kTrain, "train.transport_dtype=\"bfloat16\"");
    const auto first = play(e, beginning(e), "crossed-1-" + method).next;
    const std::string site = "model.layers.0.mlp.experts.up_proj";
    const auto& change = first.state.common.base_change.at(site);
    const auto& delta = first.state.global.base_delta.at(site);
    EXPECT_EQ(change.a.scalar_type(), at::kBFloat16) << method;
    EXPECT_TRUE(delta.a.is_alias_of(change.a) && delta.b.is_alias_of(change.b)) << method;
    const auto next = play(e, first, "crossed-2-" + method).next;
    EXPECT_EQ(e.fabric.context.shared->common().base_change.at(site).b.scalar_type(), at::kBFloat16) << method;
    // Going on from the file is going on: alias or not.
    save_state(root() / (method + ".state"), first.state);
    const auto again =
        play(e, {.state = load_state(root() / (method + ".state"), 1)}, "crossed-2-again-" + method).next;
    testing::expect_same(again.state, next.state);
  }
}

/// Saves a base with one expert per token, whose gate weight is always one.
fs::path model_of_one_expert(const fs::path& root) {
  Json config = Json::parse(testing::kSmallModel);
  config.update({{"num_experts_per_tok", 1}, {"norm_topk_prob", true}});
  write_file_atomic(root / "one.json", config.dump());
  models::save_model(*models::init_model(root / "one.json", models::BaseDtype::kFloat32, 1), root / "one");
  fs::copy_file(root / "model" / "tokenizer.json", root / "one" / "tokenizer.json");
  return root / "one";
}

TEST_F(RoundTest, ARunWithoutAnUpdateOfASiteGoesOnFromItsState) {
  auto e = experiment("florist", Purpose::kTrain, concat("model.path=\"", model_of_one_expert(root()).string(), "\""),
                      {"evaluate.budgets=[1.0]"});
  const std::string router = "model.layers.0.mlp.gate";
  const auto first = play(e, beginning(e), "no-update-1").next;
  EXPECT_EQ(first.state.unadapted, (std::set<std::string>{router, "model.layers.1.mlp.gate"}));
  EXPECT_FALSE(first.state.global.base_delta.contains(router)) << "nothing is sent";
  save_state(root() / "no-update.state", first.state);
  const auto read = load_state(root() / "no-update.state", 1);
  EXPECT_EQ(testing::refusal([&] { check_state(read, e.server.sites, "state"); }), "no error");
  const auto next = play(e, first, "no-update-2").next.state;
  testing::expect_same(play(e, {.state = read}, "no-update-2-again").next.state, next);
  const auto& client = e.server.clients[1];
  const auto task = e.server.training_task(first.state, client, e.server.draw(first.state));
  EXPECT_EQ(testing::refusal([&] {
              check_download(lora::decode(task.payload.bytes, "a task"), e.server.sites,
                             download_terms(e.server, client), "a task");
            }),
            "no error");
}

// The base change is either shared by server and clients or sent by broadcasts.
TEST_F(RoundTest, FreedMemoryIsReturnedOnlyIfTheBaseHasChanged) {
  for (const std::string method : {"fedit", "fedex-lora"}) {
    auto e = experiment(method);
    const auto first = play(e, beginning(e), concat("room-", method, "-1"));
    const testing::FreedMemory freed;
    if (!freed.is_glibcs()) GTEST_SKIP() << "another allocator than glibc's";
    play(e, first.next, concat("room-", method, "-2"));
    EXPECT_EQ(freed.went_back(), method == "fedex-lora") << method;
  }
}

TEST_F(RoundTest, StateSharedInProcessEqualsTheBroadcast) {
  for (const std::string method : {"flora", "fedex-lora", "ffa-lora"}) {
    auto e = experiment(method, Purpose::kTrain, "train.transport_dtype=\"bfloat16\"");
    const auto first = play(e, beginning(e), "shared-1-" + method).next;
    const auto second = play(e, first, "shared-2-" + method).next;
    for (const auto& [site, change] : first.state.common.base_change) {
      e.fabric.share(first.state);
      EXPECT_TRUE(e.fabric.context.shared->common().base_change.at(site).a.is_alias_of(change.a)) << site;
    }
    Lossy told(e.fabric, {});
    auto now = beginning(e);
    restore_clients(e.server, told, now);
    for (const std::string round : {"told-1-", "told-2-"}) {
      RunProgress progress(e.server, now.state.round);
      now = run_round(e.server, told, now, RoundJournal(root() / (round + method)), progress).next;
    }
    testing::expect_same(now.state, second.state);
  }
}

TEST_F(RoundTest, EvaluationUsesTheMeanRescalerOfClientsWithItsTopK) {
  auto e = experiment("a3smoe", Purpose::kTrain, "method.a3smoe.rescaler=\"learn\"");
  e.server.clients[1].top_k = e.server.clients[0].top_k;
  e.fabric.clients = e.server.clients;
  const auto next = play(e, beginning(e), "rescaler").next;
  const auto scale = [&](const methods::ServerState& state, double budget) {
    return setup_at(e, state, budget).router.output_scale.item<double>();
  };
  const auto learned = [&](int64_t client) { return next.memories.at(client).at("rescaler").item<double>(); };
  const double first = e.server.clients[0].examples, second = e.server.clients[1].examples;
  EXPECT_NE(learned(0), 1);
  EXPECT_NE(learned(0), learned(1));
  EXPECT_NEAR(scale(next.state, 0.25), (first * learned(0) + second * learned(1)) / (first + second), 1e-6);
  EXPECT_NEAR(scale(next.state, 1.0), learned(2), 1e-6);
  EXPECT_EQ(scale(next.state, 0.5), 1) << "no client of that K has trained";
  EXPECT_EQ(scale(beginning(e).state, 1.0), 1);
}

const scoring::ClientOfScore kOwnRowsOfTheFirst{.id = 0};

TEST_F(RoundTest, EvaluationCutsToTheRankOfClientsWithTheBudget) {
  auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
  for (const auto& change : {concat("model.path=\"", (root() / "model").string(), "\""),
                             std::string("method.name=hetlora"), std::string("lora.rank=10"),
                             std::string("clients.budgets=[0.25, 0.25, 1.0]"), std::string("clients.ranks=[3, 2, 7]")})
    table.set(change);
  const auto e = make_experiment(settle(ExperimentConfig::read(table), {}), Purpose::kEvaluate);
  auto state = first_state(e.server);
  const auto rank = [&](double budget) {
    return e.server.evaluator(state, {.budget = budget, .rank_eval_mode = "a"}).rank;
  };
  EXPECT_EQ(rank(0.25), 2);
  EXPECT_EQ(rank(1.0), 7);
  EXPECT_EQ(rank(0.5), 6) << "no client has it: 0.2 + 0.8 * 0.5 of lora.rank";
  state.memory["rank/0"] = at::scalar_tensor(1, at::kLong);
  EXPECT_EQ(rank(0.25), 1) << "a client that has pruned itself";
  for (const auto& [mode, expected] : {std::pair{"a", 1}, std::pair{"b", 7}}) {
    const auto own = e.server.evaluator(state, {.budget = 0.25, .rank_eval_mode = mode, .client = kOwnRowsOfTheFirst});
    EXPECT_EQ(e.server.setup_of(state, own).adapters.begin()->second.rank(), expected) << mode;
  }
}

TEST_F(RoundTest, EvaluationOfTheWholeAdapterHasAllComponentsOfFlorist) {
  auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
  for (const auto& change :
       {concat("model.path=\"", (root() / "model").string(), "\""), std::string("method.name=florist"),
        std::string("method.florist.mode=code"), std::string("lora.rank=10"), std::string("clients.ranks=[3, 2, 7]")})
    table.set(change);
  const auto e = make_experiment(settle(ExperimentConfig::read(table), {}), Purpose::kEvaluate);
  auto state = first_state(e.server);
  for (auto& [site, factors] : state.global.adapters) factors = lora::padded(factors, 11);
  const auto rank = [&](const char* mode) {
    const auto client = e.server.evaluator(state, {.budget = 1.0, .rank_eval_mode = mode});
    return e.server.setup_of(state, client).adapters.begin()->second.rank();
  };
  EXPECT_EQ(rank("a"), 7);
  EXPECT_EQ(rank("b"), 11);
}

TEST_F(RoundTest, RanksDetermineShapesAndScalingOfAdapters) {
  auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
  table.set(concat("model.path=\"", (root() / "model").string(), "\""));
  table.set("clients.ranks=[2, 2, 2]");
  for (const auto& [mode, scaling] : {std::pair{"fixed_alpha", 4.0 / 2}, std::pair{"const_scale", 4.0 / 3}}) {
    table.set(concat("lora.lora_scale_mode=\"", mode, "\""));
    auto e = make_experiment(settle(ExperimentConfig::read(table), {}), Purpose::kEvaluate);
    for (const auto& [site, factors] : beginning(e).state.global.adapters) {
      EXPECT_EQ(factors.rank(), 2);
      EXPECT_DOUBLE_EQ(factors.scaling, scaling);
    }
  }
}

}  // namespace
}  // namespace evenkeel::fed
