// Checks message sizes and activated parameters against the published numbers for OLMoE-1B-7B and OLMo-1B with 16-bit
// values. The methods run at the true widths, and bytes are counted as in round records. The numbers are exact and need
// no weights.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/cost.h"
#include "tiny_federation.h"

namespace evenkeel {
namespace {

constexpr int64_t kLayers = 16, kExperts = 64, kTopK = 8, kHidden = 2048, kWidth = 1024, kDenseWidth = 8192;
constexpr int64_t kMiB = 1024 * 1024;
const std::vector<int64_t> kEqualRanks(8, 20), kUnequalRanks{6, 6, 8, 8, 12, 12, 20, 20};
using Parts = std::map<std::string, int64_t>;

std::string layer_name(int64_t layer) { return concat("model.layers.", layer, "."); }

/// Adds the adapted modules of one layer: attention, optionally the router, and 64 experts with three projections.
void add_layer(lora::Sites& sites, int64_t layer, bool router) {
  const auto at = layer_name(layer), moe = at + "mlp";
  for (const auto* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
    sites[at + "self_attn." + name] = {0, kHidden, kHidden, "", lora::SiteRole::kAttention};
  for (const auto* name : {"gate_proj", "up_proj"})
    sites[moe + ".experts." + name] = {kExperts, kHidden, kWidth, moe, lora::SiteRole::kExpert};
  sites[moe + ".experts.down_proj"] = {kExperts, kWidth, kHidden, moe, lora::SiteRole::kExpert};
  if (router) sites[moe + ".gate"] = {0, kHidden, kExperts, "", lora::SiteRole::kRouter};
}

lora::Sites olmoe_sites(int64_t layers, bool router = false) {
  lora::Sites sites;
  for (int64_t layer = 0; layer < layers; ++layer) add_layer(sites, layer, router);
  return sites;
}

lora::Sites olmo_sites() {
  lora::Sites sites;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const auto at = layer_name(layer);
    for (const auto* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      sites[at + "self_attn." + name] = {0, kHidden, kHidden, ""};
    for (const auto* name : {"gate_proj", "up_proj"}) sites[at + "mlp." + name] = {0, kHidden, kDenseWidth, ""};
    sites[at + "mlp.down_proj"] = {0, kDenseWidth, kHidden, ""};
  }
  return sites;
}

/// Multiplies the sizes of the first layer's payload by the number of layers, because all layers are equal.
template <typename Map>
Map of_all_layers(const Map& first) {
  const auto prefix = layer_name(0);
  Map all;
  for (const auto& [name, value] : first) {
    const bool in_layer = name.starts_with(prefix);
    for (int64_t layer = 0; layer < (in_layer ? kLayers : 1); ++layer)
      all.emplace(in_layer ? layer_name(layer) + name.substr(prefix.size()) : name, value);
  }
  return all;
}

lora::Payload of_all_layers(const lora::Payload& first) {
  return {of_all_layers(first.adapters), of_all_layers(first.extras), of_all_layers(first.base_delta)};
}

/// Returns the bytes of the whole model's payload by content, as in round records.
Parts bytes_of(const lora::Payload& of_first_layer) {
  return lora::payload_parts(of_all_layers(of_first_layer), lora::TransportDtype::kBFloat16,
                             olmoe_sites(kLayers, true));
}

nn::RoutingByLayer routed(const std::string& layer, const at::Tensor& counts_E, int64_t tokens) {
  return {{layer, {.router_logits = {}, .counts = counts_E, .tokens = tokens}}};
}

/// Returns a client's factors of one site: random, of full rank, and equal for all experts, so that they need little
/// memory.
lora::LoraFactors random_factors(const lora::Site& site, const methods::ClientProfile& client) {
  const auto seed = static_cast<uint64_t>(client.id);
  const auto a = lora::make_lora("a", {0, site.in, site.out, ""}, client.rank, 1.0, seed).a;
  const auto b = lora::make_lora("b", {0, site.out, site.in, ""}, client.rank, 1.0, seed).a.t();
  if (site.experts == 0) return {.a = a, .b = b};
  return {.a = a.expand({site.experts, -1, -1}), .b = b.expand({site.experts, -1, -1})};
}

/// Runs a method at the widths of one layer of OLMoE, with two clients per budget, K = 1, 2, 4, 8.
struct Federation {
  Federation(const std::string& name, const std::vector<int64_t>& ranks, const std::string& toml = "",
             bool router = false)
      : method(make_method(name, toml)),
        sites(olmoe_sites(1, router)),
        rank(*std::max_element(ranks.begin(), ranks.end())) {
    for (const int64_t r : ranks) {
      const auto id = static_cast<int64_t>(round.participants.size());
      round.participants.push_back({.id = id, .top_k = int64_t{1} << id / 2, .rank = r, .examples = 1});
      round.weights.push_back(1.0 / static_cast<double>(ranks.size()));
    }
  }

  methods::ServerView server() const {
    return {.sites = sites,
            .moe_layers = {layer_name(0) + "mlp"},
            .num_experts = kExperts,
            .max_top_k = kTopK,
            .rank = rank,
            .scale = {.alpha = 20, .rank = rank},
            .lr = 2e-4,
            .seed = 42,
            .gradient_sum = [this](const std::string& site, const methods::GradientSample&) {
              const auto& at = sites.at(site);
              const auto zero = at::zeros({}, at::kFloat);
              return at.experts > 0 ? zero.expand({at.experts, at.out, at.in}) : zero.expand({at.out, at.in});
            }};
  }

  lora::Payload upload(const methods::ServerState& state, const methods::ClientProfile& client) const {
    TensorMap memory;
    const methods::ClientView view{.client = client,
                                   .sites = sites,
                                   .common = state.common,
                                   .scale = server().scale,
                                   .seed = 42,
                                   .memory = memory};
    const auto download = method->broadcast(state, client, round);
    const auto once = routed(layer_name(0) + "mlp", at::ones({kExperts}, at::kLong), kExperts / client.top_k);
    return method->upload(download, method->prepare(download, view), once, view);
  }

  /// Returns the server's state after one round of random uploads.
  methods::ServerState after_a_round(const methods::ServerState& state) const {
    std::vector<methods::ClientUpdate> updates;
    for (const auto& client : round.participants) {
      lora::Payload payload;
      for (const auto& [name, site] : sites) payload.adapters[name] = random_factors(site, client);
      updates.push_back({client, payload, 1});
    }
    return method->aggregate(server(), state, round, updates);
  }

  Parts down(const methods::ServerState& state, size_t client = 0) const {
    return bytes_of(method->broadcast(state, round.participants[client], round));
  }
  Parts up(const methods::ServerState& state, size_t client = 0) const {
    return bytes_of(upload(state, round.participants[client]));
  }

  std::unique_ptr<methods::FederatedMethod> method;
  lora::Sites sites;
  int64_t rank;
  methods::RoundView round;
};

/// Checks that the payload has exactly these parts and a header.
void expect_parts(Parts parts, const Parts& expected) {
  EXPECT_GT(parts.at("header"), 0);
  EXPECT_LT(parts.at("header"), 200'000);
  parts.erase("header");
  EXPECT_EQ(parts, expected);
}

constexpr int64_t kAllLora = 370 * kMiB, kExpertLora = 360 * kMiB;
constexpr int64_t kCounts = 4 * kLayers * kExperts, kTokens = 4 * kLayers, kPhi = 4 * kLayers * kExperts;

TEST(PublishedBytes, OfRank20EqualTheSumOverTheModules) {
  EXPECT_EQ(kAllLora, 2 * 193'986'560);
  EXPECT_EQ(kExpertLora, 2 * 188'743'680);
  EXPECT_EQ(models::lora_parameters(olmoe_sites(kLayers), 20), 193'986'560);
  EXPECT_EQ(models::lora_parameters(olmoe_sites(kLayers, true), 20), 194'662'400);
}

TEST(PublishedBytes, UbSmoeDownloads730AndUploads370) {
  const Federation world("ub-smoe", kEqualRanks);
  const auto state = world.method->initialize(world.server());
  const auto down = world.down(state);
  EXPECT_EQ(down.at("adapters") + down.at("pseudo_grad_a") + down.at("pseudo_grad_b"), 730 * kMiB);
  EXPECT_EQ(down.at("pseudo_grad_a") + down.at("pseudo_grad_b"), kExpertLora);
  EXPECT_EQ(down.at("phi"), kPhi);
  EXPECT_EQ(down.at("reference"), 8) << "the mean K, which a client cannot know";
  EXPECT_EQ(down.size(), 6u);
  expect_parts(world.up(state), {{"adapters", kAllLora}, {"counts", kCounts}, {"tokens", kTokens}});
}

TEST(PublishedBytes, DoNotDependOnTheBudgetOfASparsityMethod) {
  const Federation world("ub-smoe", kEqualRanks);
  const auto state = world.method->initialize(world.server());
  EXPECT_EQ(world.up(state, 0), world.up(state, 7));
  EXPECT_EQ(world.down(state, 0), world.down(state, 7));
}

TEST(PublishedBytes, OtherSparsityMethodsAndFedItMove370EachWay) {
  for (const std::string name : {"a3smoe", "smoe-llb", "fedit"}) {
    const Federation world(name, kEqualRanks);
    const auto state = world.method->initialize(world.server());
    expect_parts(world.down(state), {{"adapters", kAllLora}});
    Parts up{{"adapters", kAllLora}};
    if (name == "a3smoe") up.insert({{"counts", kCounts}, {"tokens", kTokens}});
    expect_parts(world.up(state), up);
  }
}

TEST(PublishedBytes, ReportRoutersSeparately) {
  const Federation world("fedit", kEqualRanks, "", /*router=*/true);
  const auto state = world.method->initialize(world.server());
  expect_parts(world.down(state), {{"adapters", kAllLora}, {"router_adapters", 2 * 675'840}});
}

TEST(PublishedBytes, RankMethodsUpload212And3QuartersOnAverage) {
  for (const std::string name : {"hetlora", "flexlora", "flora", "florist"}) {
    const Federation world(name, {6, 8, 12, 20});
    const auto state = world.method->initialize(world.server());
    int64_t up = 0, down = 0;
    for (size_t c = 0; c < 4; ++c) {
      const auto sent = world.up(state, c), got = world.down(state, c);
      EXPECT_EQ(sent.at("adapters"), kAllLora / 20 * world.round.participants[c].rank) << name;
      EXPECT_EQ(sent.contains("rank"), name == "hetlora");
      up += sent.at("adapters");
      down += got.contains("adapters") ? got.at("adapters") : 0;
    }
    EXPECT_EQ(up, 851 * kMiB) << name << ": 4 * 212.75";
    const bool merges = name == "flora" || name == "florist";
    EXPECT_EQ(down, merges ? 0 : up) << name << ": before the first round there is nothing to merge";
  }
}

TEST(PublishedBytes, FloraSendsItsStackOfRank92ToEverybody) {
  const Federation world("flora", kUnequalRanks);
  const auto state = world.method->initialize(world.server());
  expect_parts(world.down(state), {});
  expect_parts(world.down(world.after_a_round(state)), {{"base_delta", 1702 * kMiB}});
}

TEST(PublishedBytes, FloristSends370AtRank20) {
  const Federation world("florist", {12, 12}, "tau = 1.0\nmax_rank = 20");
  const auto next = world.after_a_round(world.method->initialize(world.server()));
  EXPECT_EQ(next.memory.at("mean_rank").item<double>(), 20);
  expect_parts(world.down(next), {{"base_delta", kAllLora}, {"ranks", 8 * 3 * kLayers * kExperts}});
}

TEST(PublishedBytes, FedExSendsAResidualOfRank140) {
  const Federation world("fedex-lora", kEqualRanks);
  const auto next = world.after_a_round(world.method->initialize(world.server()));
  expect_parts(world.down(next), {{"adapters", kAllLora}, {"base_delta", 2590 * kMiB}});
  int64_t dense = 0;
  for (const auto& [name, site] : olmoe_sites(kLayers))
    dense += std::max<int64_t>(site.experts, 1) * site.in * site.out;
  EXPECT_EQ(dense, 6'710'886'400) << "what the residual would be as whole matrices: 12.5 GiB";
}

TEST(PublishedBytes, FfaMovesOnlyBAndItsAOnce) {
  const Federation world("ffa-lora", kEqualRanks);
  const auto state = world.method->initialize(world.server());
  expect_parts(world.down(state), {{"adapters", 2 * 86'507'520}});
  expect_parts(world.up(state), {{"adapters", 165 * kMiB}});
  expect_parts(bytes_of({.adapters = state.common.fixed}), {{"adapters", kAllLora - 165 * kMiB}});
}

TEST(PublishedBytes, FedSbMovesOneSmallMatrixPerModuleAndItsBasesOnce) {
  const Federation world("fed-sb", kEqualRanks, "", /*router=*/true);
  const auto state = world.method->initialize(world.server());
  const Parts cores{{"adapters", 2 * 1'254'400}, {"router_adapters", 2 * (1'260'800 - 1'254'400)}};
  expect_parts(world.down(state), cores);
  expect_parts(world.up(state), cores);
  EXPECT_EQ(std::llround(100.0 * 2 * 1'254'400 / kMiB), 239);
  EXPECT_EQ(bytes_of({.adapters = state.common.fixed}).at("adapters"), kAllLora);
}

/// The clients per budget of runs with 32 clients.
struct Pattern {
  std::array<int64_t, 4> clients;
  double kbar, target;
  std::array<double, 4> rho;  ///< at K = 1, 2, 4, 8
  int64_t mean_rank_mib_16;   ///< mean upload of a rank method, in sixteenths of a MiB
  double growth;              ///< sum p_c rho_c: growth of the pseudo-gradient of an unused expert under SGD
};
const std::array kPatterns{
    Pattern{{8, 8, 8, 8}, 3.75, 0.05859375, {1.936492, 1.369306, 0.968246, 0.684653}, 3404, 1.239674},
    Pattern{{24, 4, 2, 2}, 1.75, 0.02734375, {1.322876, 0.935414, 0.661438, 0.467707}, 2220, 1.179655},
    Pattern{{2, 2, 4, 24}, 6.6875, 0.1044921875, {2.586020, 1.828592, 1.293010, 0.914296}, 5143, 1.123262}};

std::vector<int64_t> by_client(const Pattern& pattern, const std::array<int64_t, 4>& of_budget) {
  std::vector<int64_t> all;
  for (size_t b = 0; b < 4; ++b) all.insert(all.end(), static_cast<size_t>(pattern.clients[b]), of_budget[b]);
  return all;
}

TEST(PublishedPatterns, OfRankMethodsHaveTheseMeanUploads) {
  const Federation world("hetlora", {6, 8, 12, 20});
  const auto state = world.method->initialize(world.server());
  for (const auto& pattern : kPatterns) {
    int64_t sum = 0;
    for (size_t b = 0; b < 4; ++b) sum += pattern.clients[b] * world.up(state, b).at("adapters");
    EXPECT_EQ(16 * sum, 32 * pattern.mean_rank_mib_16 * kMiB);
  }
}

/// Returns the gradient that client `c` gets for an expert that none of its tokens selected.
double injected(const Federation& world, const methods::ServerState& state, size_t c, const std::string& site) {
  const auto& client = world.round.participants[c];
  TensorMap memory;
  const methods::ClientView view{.client = client,
                                 .sites = world.sites,
                                 .common = state.common,
                                 .scale = world.server().scale,
                                 .seed = 42,
                                 .memory = memory};
  const auto download = world.method->broadcast(state, client, world.round);
  auto setup = world.method->prepare(download, view);
  for (auto* factor : {&setup.adapters.at(site).a, &setup.adapters.at(site).b})
    factor->requires_grad_(true), factor->mutable_grad() = at::zeros_like(*factor);
  auto counts = at::zeros({kExperts}, at::kLong);
  counts[3] = 7;
  const std::vector<nn::RoutingByLayer> micro_batches{routed(world.sites.at(site).moe_layer, counts, 7)};
  methods::Metrics metrics;
  world.method->edit_gradients({view, download, setup, micro_batches, 2e-4, metrics});
  return setup.adapters.at(site).a.grad()[0][0][0].item<double>();
}

/// Uses a site of a few numbers, because rho and the mean K do not depend on shapes.
TEST(PublishedPatterns, HaveTheseMeanKAndRho) {
  constexpr double kTiny = 1e-4;
  const std::string layer = layer_name(0) + "mlp", site = layer + ".experts.up_proj";
  for (const auto& pattern : kPatterns) {
    Federation world("ub-smoe", std::vector<int64_t>(32, 2), "pg_apply = 'adam_grad'\npg_clip_mode = 'off'");
    world.sites = {{site, {kExperts, 3, 5, layer}}};
    const auto top_ks = by_client(pattern, {1, 2, 4, 8});
    for (size_t c = 0; c < top_ks.size(); ++c) world.round.participants[c].top_k = top_ks[c];
    auto state = world.method->initialize(world.server());
    state.global.extras.at(site + ".pseudo_grad_a").fill_(kTiny);
    double growth = 0;
    for (size_t c = 0; c < top_ks.size(); ++c) {
      const double rho = injected(world, state, c, site) / kTiny;
      EXPECT_NEAR(rho, pattern.rho[static_cast<size_t>(std::log2(top_ks[c]))], 1e-6);
      growth += rho / 32;
    }
    EXPECT_NEAR(growth, pattern.growth, 1e-6);
    const auto download = world.method->broadcast(state, world.round.participants[0], world.round);
    EXPECT_EQ(download.extras.at("rho.reference").item<double>(), pattern.kbar);
    EXPECT_EQ(pattern.kbar / kExperts, pattern.target);
  }
}

struct Activated {
  int64_t top_k, rank, parameters;
  double printed;  ///< three digits
  bool agrees;
};

TEST(PublishedParameters, ActivatedByOneTokenOnOlmoe) {
  for (const auto& row : {Activated{1, 20, 8'192'000, 8.19e6, true},
                          {2, 20, 11'141'120, 1.11e7, true},
                          {4, 20, 17'039'360, 1.70e7, true},
                          {8, 20, 28'835'840, 2.57e7, false},
                          {8, 6, 8'650'752, 8.65e6, true},
                          {8, 8, 11'534'336, 1.15e7, true},
                          {8, 12, 17'301'504, 1.63e7, false}}) {
    EXPECT_EQ(models::activated_parameters(olmoe_sites(kLayers), row.rank, row.top_k), row.parameters);
    EXPECT_EQ(std::abs(static_cast<double>(row.parameters) - row.printed) < 0.005 * row.printed, row.agrees);
  }
  const auto with_router = models::activated_parameters(olmoe_sites(kLayers, true), 20, 1);
  EXPECT_EQ(with_router - 8'192'000, 675'840) << "which fits none of the printed numbers";
}

TEST(PublishedParameters, OfDenseOlmo) {
  for (const auto& [rank, parameters] :
       {std::pair{12, 9'043'968}, std::pair{16, 12'058'624}, std::pair{24, 18'087'936}, std::pair{40, 30'146'560}})
    EXPECT_EQ(models::activated_parameters(olmo_sites(), rank, 0), parameters);
}

/// Checks that models of these families have the sites that are counted above.
TEST(PublishedParameters, AreCountedOverTheSitesOfTheModels) {
  const auto expect_same_kind = [](const lora::Sites& counted, const lora::Sites& real) {
    lora::Sites first;
    for (const auto& [name, site] : counted)
      if (name.starts_with(layer_name(0)) || name.starts_with(layer_name(1))) first[name] = site;
    ASSERT_EQ(first.size(), real.size());
    for (const auto& [name, site] : real) {
      ASSERT_TRUE(first.contains(name)) << name;
      EXPECT_EQ(first.at(name).experts > 0, site.experts > 0) << name;
      EXPECT_EQ(first.at(name).moe_layer, site.moe_layer) << name;
    }
  };
  expect_same_kind(olmoe_sites(kLayers, true), TinyFederation("olmoe").sites);
  expect_same_kind(olmo_sites(), TinyFederation("olmo").sites);
}

}  // namespace
}  // namespace evenkeel
