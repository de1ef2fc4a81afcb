// Compares the kernels of routing with LibTorch's operators in float64, and with its stable sort.
#include "both_orders.h"

namespace evenkeel::nn::cuda {
namespace {

using testing::apart_by_norm;

struct RouteSizes {
  int64_t tokens, experts, top_k;
};
const std::vector<RouteSizes> kSizes{{0, 5, 2}, {1, 1, 1}, {7, 5, 2}, {3, 64, 8}, {5, 131, 3}, {2, 33, 33}};

int64_t blocks_of(int64_t tokens) { return (tokens + kThreads / 32 - 1) / (kThreads / 32); }

at::Tensor ranked(const at::Tensor& logits_TE, int64_t top_k) {
  return std::get<1>(at::sort(logits_TE, /*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, top_k).contiguous();
}

struct Routed {
  at::Tensor chosen, weights, probabilities;
};

Routed route(const at::Tensor& logits_TE, int64_t top_k, bool over_all) {
  const int64_t tokens = logits_TE.size(0), experts = logits_TE.size(1);
  const Routed out{at::full({tokens, top_k}, -1, at::kLong), unwritten({tokens, top_k}, at::kFloat),
                   over_all ? unwritten({tokens, experts}, at::kFloat) : at::Tensor()};
  std::vector<at::Tensor> outputs{out.chosen, out.weights};
  if (over_all) outputs.push_back(out.probabilities);
  run_both_ways("route_forward",
                RouteForward{address<float>(logits_TE), address<long long>(out.chosen), address<float>(out.weights),
                             address<float>(out.probabilities), static_cast<int>(tokens), static_cast<int>(experts),
                             static_cast<int>(top_k)},
                blocks_of(tokens), outputs);
  return out;
}

void expect_routing(const RouteSizes& sizes, bool over_all) {
  const auto logits = random_values({sizes.tokens, sizes.experts}, 1, at::kFloat) * 2,
             dweights = random_values({sizes.tokens, sizes.top_k}, 2, at::kFloat),
             dlogits = unwritten(logits.sizes(), at::kFloat);
  const auto out = route(logits, sizes.top_k, over_all);
  run_both_ways(
      "route_backward",
      RouteBackward{address<float>(dweights), address<float>(out.weights), address<long long>(out.chosen),
                    address<float>(out.probabilities), address<float>(dlogits), static_cast<int>(sizes.tokens),
                    static_cast<int>(sizes.experts), static_cast<int>(sizes.top_k)},
      blocks_of(sizes.tokens), {dlogits});
  const auto expected = ranked(logits, sizes.top_k);
  EXPECT_TRUE(at::equal(out.chosen, expected));
  if (sizes.tokens == 0) return;
  const auto from = logits.to(at::kDouble).requires_grad_(true);
  const auto weights = over_all ? at::softmax(from, 1).gather(1, expected) : at::softmax(from.gather(1, expected), 1);
  (weights * dweights.to(at::kDouble)).sum().backward();
  EXPECT_LT(apart_by_norm(out.weights, weights.detach()), 1e-6);
  if (over_all) {
    EXPECT_LT(apart_by_norm(out.probabilities, at::softmax(logits.to(at::kDouble), 1)), 1e-6);
  }
  EXPECT_LT((dlogits.to(at::kDouble) - from.grad()).abs().max().item<double>(), 1e-6);
}

TEST(RoutingKernel, SelectsWeighsAndGivesTheGradient) {
  for (const auto& sizes : kSizes)
    for (const bool over_all : {false, true}) expect_routing(sizes, over_all);
}

TEST(RoutingKernel, BreaksTiesByIndexAndTakesNaNFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  auto logits = at::tensor({1.f, 2.f, 2.f,  1.f,      2.f, -0.f,      0.f,       -0.f,      3.f,       0.f,
                            nan, 5.f, -nan, infinity, 1.f, -infinity, -infinity, -infinity, -infinity, -infinity},
                           at::kFloat)
                    .view({4, 5});
  for (const bool over_all : {false, true}) {
    const auto out = route(logits, 5, over_all);
    EXPECT_TRUE(at::equal(out.chosen, ranked(logits, 5))) << out.chosen;
    EXPECT_TRUE(at::isnan(out.weights[2]).all().item<bool>());
    EXPECT_TRUE(at::isnan(out.weights[3]).all().item<bool>());  // as at::softmax() of nothing but -infinity
  }
}

void expect_slots(const RouteSizes& sizes, unsigned threads) {
  const auto [tokens, experts, top_k] = sizes;
  // The last expert is never chosen, but where there is one only.
  const auto chosen =
      (testing::random_tensor({tokens, top_k}, 5).abs() * 1000).to(at::kLong) % std::max<int64_t>(experts - 1, 1);
  const int64_t choices = tokens * top_k, slices = (choices + kSliceChoices - 1) / kSliceChoices;
  const int count = static_cast<int>(experts), all = static_cast<int>(choices);
  const auto counts = at::full({slices, experts}, -1, at::kInt), ends = at::full({experts}, -1, at::kInt),
             idle = at::full({experts}, 7, at::kByte), order = at::full({choices}, -1, at::kLong),
             token = at::full({choices}, -1, at::kLong), place = at::full({choices}, -1, at::kLong);
  run_both_ways("count_choices", CountChoices{address<long long>(chosen), address<int>(counts), all, count}, slices,
                {counts}, threads);
  run_both_ways("start_slots",
                StartSlots{address<int>(counts), address<int>(ends), address<unsigned char>(idle),
                           static_cast<int>(slices), count},
                1, {counts, ends, idle}, threads);
  run_both_ways("place_choices",
                PlaceChoices{address<long long>(chosen), address<int>(counts), address<long long>(order),
                             address<long long>(token), address<long long>(place), all, count, static_cast<int>(top_k)},
                slices, {order, token, place}, threads);
  const auto sorted = at::sort(chosen.view({-1}), /*stable=*/true, 0, false);
  EXPECT_TRUE(at::equal(order, std::get<1>(sorted)));
  EXPECT_TRUE(at::equal(token, at::floor_divide(order, top_k)));
  EXPECT_TRUE(at::equal(place.index_select(0, order), at::arange(choices, at::kLong)));
  const auto numbers = at::bincount(chosen.view({-1}), {}, experts);
  EXPECT_TRUE(at::equal(ends.to(at::kLong), numbers.cumsum(0)));
  EXPECT_TRUE(at::equal(idle.to(at::kLong), numbers.eq(0).to(at::kLong)));
}

TEST(RoutingKernel, SortsTheChoicesOfExpertsStably) {
  for (const RouteSizes& sizes :
       {RouteSizes{0, 5, 2}, RouteSizes{1, 1, 1}, RouteSizes{7, 5, 2}, RouteSizes{131, 64, 3}, RouteSizes{300, 70, 5}})
    for (const unsigned threads : {32u, 64u}) expect_slots(sizes, threads);  // also more experts than threads
}

}  // namespace
}  // namespace evenkeel::nn::cuda
