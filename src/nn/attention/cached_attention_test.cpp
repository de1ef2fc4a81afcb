#include "nn/attention/cached_attention.h"

#include "base/plain/error.h"
#include "nn/attention/attention.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::max_difference;
using testing::random_tensor;

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadWidth = 6, kLayer = 1;

KvShape shape_of(at::ScalarType type) { return {.layers = 2, .heads = kKvHeads, .width = kHeadWidth, .type = type}; }

/// A text with its queries, keys and values.
struct Text {
  Text(int64_t length, uint64_t seed, at::ScalarType type = at::kDouble)
      : q(testing::random_tensor({length, kHeads, kHeadWidth}, seed, type)),
        k(testing::random_tensor({length, kKvHeads, kHeadWidth}, seed + 1, type)),
        v(testing::random_tensor({length, kKvHeads, kHeadWidth}, seed + 2, type)) {}
  at::Tensor q, k, v;

  at::Tensor attention() const { return packed_attention(q, k, v, std::vector<int64_t>{0, q.size(0)}); }
};

struct Part {
  const Text* text;
  int64_t from, to;
  at::Tensor of(const at::Tensor& x) const { return x.slice(0, from, to); }
};

/// Appends the parts to the cache's sequences. Returns the output of cached attention at their positions, concatenated.
at::Tensor append(KvCache& cache, const std::vector<Part>& parts) {
  std::vector<int64_t> offsets{0};
  std::vector<at::Tensor> q, k, v;
  for (const auto& part : parts) {
    offsets.push_back(offsets.back() + part.to - part.from);
    q.push_back(part.of(part.text->q));
    k.push_back(part.of(part.text->k));
    v.push_back(part.of(part.text->v));
  }
  cache.extend(offsets);
  store_keys(at::cat(k), at::cat(v), offsets, cache, kLayer);
  return cached_attention(at::cat(q), offsets, cache, kLayer);
}

at::Tensor expected(const std::vector<Part>& parts) {
  std::vector<at::Tensor> rows;
  for (const auto& part : parts) rows.push_back(part.of(part.text->attention()));
  return at::cat(rows);
}

KvCache cache_with_capacities(std::initializer_list<int64_t> capacities, at::ScalarType type = at::kDouble) {
  KvCache cache(shape_of(type));
  cache.sequences.resize(capacities.size());
  cache.open(std::vector<int64_t>(capacities));
  return cache;
}

double tolerance(at::ScalarType type) { return type == at::kDouble ? 1e-12 : 1e-5; }

TEST(CachedAttention, EqualsAttentionOverTheWholeSequence) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Text one(9, 1, type), other(4, 4, type);
    auto cache = cache_with_capacities({9, 4}, type);
    // Appends prompts of 5 and 2 tokens, then a block of 3 and 1, then all other tokens.
    for (const auto& parts : std::vector<std::vector<Part>>{
             {{&one, 0, 5}, {&other, 0, 2}}, {{&one, 5, 8}, {&other, 2, 3}}, {{&one, 8, 9}, {&other, 3, 4}}})
      EXPECT_LT(testing::max_difference(append(cache, parts), expected(parts)), tolerance(type));
    EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{9, 4}));
  }
}

TEST(CachedAttention, SplitsLongSequencesAndGroupsShortOnes) {
  const Text text(300, 7);
  auto cache = cache_with_capacities({300});
  append(cache, {{&text, 0, 70}});
  const std::vector<Part> rest{{&text, 70, 300}};
  EXPECT_LT(testing::max_difference(append(cache, rest), expected(rest)), 1e-12);

  KvCache many(shape_of(at::kDouble));
  std::vector<Text> texts;
  std::vector<Part> starts, ends;
  for (uint64_t b = 0; b < 150; ++b) texts.emplace_back(3 + static_cast<int64_t>(b % 5), 10 * b);
  many.sequences.resize(texts.size());
  for (size_t b = 0; b < texts.size(); ++b) {
    const int64_t length = texts[b].q.size(0);
    many.open(b, length);
    starts.push_back({&texts[b], 0, length - 1});
    ends.push_back({&texts[b], length - 1, length});
  }
  append(many, starts);
  EXPECT_LT(testing::max_difference(append(many, ends), expected(ends)), 1e-12);
}

/// Returns a text that begins with the first `shared` positions of `other`.
Text extended(const Text& other, int64_t shared, int64_t length, uint64_t seed) {
  Text text(length, seed);
  for (auto [target, source] :
       {std::pair(&text.q, &other.q), std::pair(&text.k, &other.k), std::pair(&text.v, &other.v)})
    target->slice(0, 0, shared).copy_(source->slice(0, 0, shared));
  return text;
}

TEST(CachedAttention, SequencesShareOnlyTheirCommonPrefix) {
  const Text root(20, 1);
  const auto one = extended(root, 20, 26, 11), other = extended(root, 20, 23, 14), shorter = extended(root, 12, 17, 17);
  auto prefix = cache_with_capacities({20});
  append(prefix, {{&root, 0, 20}});
  KvCache cache(prefix.shape());
  cache.sequences = {prefix.sequences[0].prefix(20), prefix.sequences[0].prefix(20), prefix.sequences[0].prefix(12)};
  for (const size_t b : {0, 1, 2}) cache.open(b, 6);
  const std::vector<Part> parts{{&one, 20, 26}, {&other, 20, 23}, {&shorter, 12, 17}};
  EXPECT_LT(testing::max_difference(append(cache, parts), expected(parts)), 1e-12);
  EXPECT_EQ(prefix.lengths(), std::vector<int64_t>{20});
}

TEST(CachedAttention, BeamsOfOneBlockAttendToTheirOwnTokens) {
  const Text root(5, 1);
  auto cache = cache_with_capacities({20});
  append(cache, {{&root, 0, 5}});
  cache.open(0, 12);
  cache.select(std::vector<int64_t>{0, 0, 0});
  const auto a = extended(root, 5, 6, 30), b = extended(root, 5, 6, 40), c = extended(root, 5, 6, 50);
  append(cache, {{&a, 5, 6}, {&b, 5, 6}, {&c, 5, 6}});
  cache.select(std::vector<int64_t>{2, 0, 0});
  const auto of_c = extended(c, 6, 8, 60), of_a = extended(a, 6, 8, 70), also_of_a = extended(a, 6, 8, 80);
  const std::vector<Part> next{{&of_c, 6, 8}, {&of_a, 6, 8}, {&also_of_a, 6, 8}};
  EXPECT_LT(testing::max_difference(append(cache, next), expected(next)), 1e-12);
}

TEST(CachedAttention, LastRowsEqualTheLastRowsOfAllQueries) {
  const Text one(9, 1), other(70, 4);
  auto cache = cache_with_capacities({9, 70});
  const std::vector<Part> whole{{&one, 0, 9}, {&other, 0, 70}};
  const auto all = append(cache, whole);
  const auto last = cached_attention(at::cat({one.q.slice(0, 8), other.q.slice(0, 69)}), std::vector<int64_t>{0, 1, 2},
                                     cache, kLayer);
  EXPECT_LT(testing::max_difference(last, at::stack({all[8], all[78]})), 1e-12);
}

TEST(CachedAttention, ABFloat16CacheRoundsOnlyKeysAndValues) {
  const Text text(40, 3, at::kFloat);
  Text rounded = text;
  rounded.k = text.k.to(at::kBFloat16).to(at::kFloat);
  rounded.v = text.v.to(at::kBFloat16).to(at::kFloat);
  auto cache = cache_with_capacities({40}, at::kBFloat16);
  append(cache, {{&text, 0, 30}});
  const std::vector<Part> end{{&rounded, 30, 40}};
  EXPECT_LT(testing::max_difference(append(cache, {{&text, 30, 40}}), expected(end)), 1e-5);
  EXPECT_EQ(cache.shape().token_bytes() * 2, shape_of(at::kFloat).token_bytes());
}

TEST(KvCache, RejectsTokensBeyondTheCapacity) {
  auto cache = cache_with_capacities({3, 2});
  const std::vector<int64_t> fits{0, 1, 2}, too_many{0, 2, 4}, of_one{0, 1};
  EXPECT_THROW(cache.extend(of_one), Error);
  cache.extend(fits);
  EXPECT_THROW(cache.extend(too_many), Error);
}

TEST(KvCache, PrefixCanEndInsideARun) {
  auto cache = cache_with_capacities({4});
  cache.extend(std::vector<int64_t>{0, 4});
  cache.open(0, 2);
  cache.extend(std::vector<int64_t>{0, 2});
  EXPECT_EQ(cache.sequences[0].prefix(5).length(), 5);
  EXPECT_EQ(cache.sequences[0].prefix(5).runs.size(), 2u);
  EXPECT_EQ(cache.sequences[0].prefix(3).runs.size(), 1u);
  EXPECT_THROW(cache.sequences[0].prefix(7), Error);
}

}  // namespace
}  // namespace evenkeel::nn
