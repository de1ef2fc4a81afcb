#include "host/results.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/error.h"

namespace evenkeel::host {
namespace {

using methods::Common, methods::LocalSetup, methods::ServerState;

const std::string kStack = "model.layers.0.mlp.experts.up_proj", kDense = "model.layers.0.self_attn.q_proj",
                  kLayer = "model.layers.0.mlp";
constexpr int64_t kSegment = 7;

/// A host that has returned tensors in one segment.
class Returned {
 public:
  const lora::Sites sites{{kStack, {.experts = 4, .in = 3, .out = 5, .moe_layer = kLayer}},
                          {kDense, {.experts = 0, .in = 3, .out = 6, .moe_layer = {}}}};
  Objects objects{};

  Json adapters(const lora::AdapterState& adapters) {
    Json places = outgoing_.add(adapters);
    for (auto& site : places)
      for (auto& place : site)
        if (place.is_array()) place.push_back(kSegment);
    return places;
  }
  Json tensors(const TensorMap& tensors) {
    Json places = outgoing_.add(tensors);
    for (auto& place : places) place.push_back(kSegment);
    return places;
  }
  Results results() {
    const auto segment = std::make_shared<Segment>(kSegment, std::max<size_t>(outgoing_.bytes(), 64));
    outgoing_.copy_to(*segment);
    segments_ = {{kSegment, segment}};
    return {objects, segments_, sites};
  }

 private:
  Outgoing outgoing_;
  SegmentsById segments_;
};

lora::LoraFactors stack(const at::Tensor& ranks = {}) {
  return {.a = at::ones({4, 2, 3}), .b = at::ones({4, 5, 2}), .ranks = ranks};
}

TEST(Results, AStateOfItsOwnKeepsWhatIsEqualForAllClients) {
  const Common old{.fixed = {{kDense, {.a = at::ones({2, 3})}}}, .base_change = {{kStack, stack()}}};
  Returned returned;
  const auto other = returned.adapters({{kDense, {.a = at::zeros({2, 3})}}});
  for (const auto& [groups, fixed] : {std::pair{Json::object(), at::ones({2, 3})},
                                      {Json{{"fixed", Json::object()}}, at::ones({2, 3})},
                                      {Json{{"fixed", other}}, at::zeros({2, 3})}}) {
    const Json value{{"of", nullptr}, {"groups", groups}};
    const auto state = returned.results().state(JsonView(value, "test"), old);
    EXPECT_TRUE(at::equal(state.common.fixed.at(kDense).a, fixed)) << groups;
    EXPECT_EQ(state.common.base_change.size(), 1U);
  }
}

TEST(Results, AStateOfTheProgramMayLoseItsFixedFactors) {
  Returned returned;
  ServerState state;
  state.common.fixed[kDense] = {.a = at::ones({2, 3})};
  const Json value{{"of", returned.objects.add(std::make_shared<const ServerState>(state))},
                   {"groups", {{"fixed", Json::object()}}}};
  EXPECT_TRUE(returned.results().state(JsonView(value, "test"), state.common).common.fixed.empty());
}

TEST(Results, RanksOfExpertsThatFitTheirStackAreTaken) {
  Returned returned;
  const auto ranks = at::tensor({0, 1, 2, 2}, at::kLong);
  const auto group = returned.adapters({{kStack, stack(ranks)}});
  EXPECT_TRUE(at::equal(returned.results().adapters(JsonView(group, "test")).at(kStack).ranks, ranks));
}

TEST(Results, RanksThatDoNotFitAndSitesWithoutFactorsAreRefused) {
  const auto longs = [](std::vector<int64_t> values) { return at::tensor(values, at::kLong); };
  const std::vector<std::pair<lora::AdapterState, std::string>> mistakes{
      {{{kStack, stack(longs({0, 1, 2, 3}))}}, ".ranks has values of 0 to 3, allowed: 0 to 2"},
      {{{kStack, stack(longs({0, -1, 2, 1}))}}, ".ranks has values of -1 to 2"},
      {{{kStack, stack(longs({1, 1}))}}, ".ranks has shape [2] and type Long, expected [4] and int64"},
      {{{kStack, stack(at::ones({4}))}}, ".ranks has shape [4] and type Float"},
      {{{kStack, {.a = at::ones({4, 2, 3}), .ranks = longs({1, 1, 1, 1})}}}, "without a stack of A and B"},
      {{{kDense, {.a = at::ones({2, 3}), .b = at::ones({6, 2}), .ranks = longs({1, 2})}}},
       "without a stack of A and B"},
      {{{kDense, {}}}, " has no factor, allowed: a, b, core"}};
  for (const auto& [adapters, text] : mistakes) {
    Returned returned;
    const auto group = returned.adapters(adapters);
    try {
      returned.results().adapters(JsonView(group, "test"));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
    }
  }
}

/// Returns what becomes of a setup of the base method whose phi is trained, when a host returns groups of it.
LocalSetup returned_setup(const TensorMap& trained, const TensorMap& modulation) {
  Returned returned;
  auto base = std::make_shared<LocalSetup>();
  base->extra_trainables = {{"phi", at::zeros({4})}, {"scale", at::ones({1})}};
  base->router.modulation[kLayer] = base->extra_trainables.at("phi");
  base->router.output_scale = base->extra_trainables.at("scale");
  Json groups = Json::object();
  if (!trained.empty()) groups["extra_trainables"] = returned.tensors(trained);
  if (!modulation.empty()) groups["modulation"] = returned.tensors(modulation);
  const Json value{{"of", returned.objects.add(SharedSetup(base))},
                   {"trainable", "ab"},
                   {"top_k", 1},
                   {"gate_norm", "renorm_selected"},
                   {"num_candidates", 2},
                   {"mode", "candidate"},
                   {"raw_gates", false},
                   {"groups", groups}};
  return returned.results().setup(JsonView(value, "test"));
}

TEST(Results, ATrainedTensorOfTheRouterStaysOneTensor) {
  const auto zero = at::zeros({4}), one = at::ones({1}), edited = at::arange(4, at::kFloat);
  for (const auto& [trained, modulation] : {std::pair<TensorMap, TensorMap>{{{"phi", zero}, {"scale", one}}, {}},
                                            {{}, {{kLayer, edited}}},
                                            {{{"phi", zero}, {"scale", one}}, {{kLayer, edited}}},
                                            {{{"phi", edited}, {"scale", one}}, {{kLayer, zero}}}}) {
    const auto setup = returned_setup(trained, modulation);
    EXPECT_TRUE(setup.extra_trainables.at("phi").is_same(setup.router.modulation.at(kLayer)));
    EXPECT_TRUE(setup.extra_trainables.at("scale").is_same(setup.router.output_scale));
    EXPECT_TRUE(at::equal(setup.router.modulation.at(kLayer), modulation.empty() ? zero : edited));
  }
}

TEST(Results, TwoValuesOfATrainedTensorAreTwoTensors) {
  const auto setup = returned_setup({{"phi", at::ones({4})}}, {{kLayer, at::full({4}, 2.0)}});
  EXPECT_FALSE(setup.extra_trainables.at("phi").is_same(setup.router.modulation.at(kLayer)));
}

TEST(SitesOf, AStateAndAPayloadHaveThoseOfEveryGroup) {
  ServerState state;
  state.global.base_delta[kStack] = stack();
  state.common.base_change[kDense] = {.a = at::ones({2, 3}), .b = at::ones({6, 2})};
  const auto sites = sites_of(state);
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites.at(kStack).experts, 4);
  EXPECT_EQ(sites.at(kDense).out, 6);
  EXPECT_EQ(sites_of(state.global).at(kStack).in, 3);
}

}  // namespace
}  // namespace evenkeel::host
