#include "nn/aten_engine/cache_places.h"

#include "base/plain/error.h"
#include "nn/aten_engine/view_of_cache.h"
#include "nn/attention/attention.h"
#include "nn/attention/cached_attention.h"
#include "nn/testing.h"

namespace evenkeel::nn::aten {
namespace {

using testing::apart_by_norm;
using testing::random_tensor;
using testing::test_device;

constexpr int64_t kHeads = 6, kGroups = 3, kWidth = 8, kLayers = 2, kLayer = 1, kCapacity = 11;

struct Attention {
  at::ScalarType type = at::kDouble;
  int64_t window = 0;
  double soft_cap = 0;
  double tolerance() const { return type == at::kDouble ? 1e-11 : 2e-2; }
};

/// New tokens of each sequence: of the sequences `of`, `count` tokens each.
struct Tokens {
  Tokens(size_t sequences, int64_t count, uint64_t seed, at::ScalarType type) : offsets{0} {
    for (size_t b = 0; b < sequences; ++b) offsets.push_back(offsets.back() + count);
    const auto values = [&](int64_t heads, uint64_t own) {
      return random_tensor({offsets.back(), heads, kWidth}, seed + own).to(type).to(at::kDouble);
    };
    q = values(kHeads, 0), k = values(kGroups, 1), v = values(kGroups, 2);
  }
  std::vector<int64_t> offsets;
  at::Tensor q, k, v;  // float64 on the CPU
};

/// Two caches of the same sequences: one on the processor in float64, and one on the device in `type`.
class Caches {
 public:
  explicit Caches(const Attention& attention)
      : attention_(attention),
        plain_({kLayers, kGroups, kWidth, at::kDouble}),
        placed_({kLayers, kGroups, kWidth, attention.type, test_device()}) {}

  /// Opens three sequences of 4, 4 and 2 tokens, whose first tokens are shared.
  void begin() {
    for (auto* cache : {&plain_, &placed_}) cache->sequences.resize(1), cache->open(0, 2);
    append({1, 2, 10, attention_.type});
    for (auto* cache : {&plain_, &placed_}) {
      const auto root = cache->sequences[0].prefix(2);
      cache->sequences = {root, root, root};
      for (const size_t b : {0, 1, 2}) cache->open(b, 9);
    }
    append({3, 2, 20, attention_.type});
    for (auto* cache : {&plain_, &placed_}) cache->sequences[2] = cache->sequences[2].prefix(3), cache->open(2, 8);
  }
  void move_to_places(int64_t places) {
    placed_.move_to_places(arena_.memory(placed_.shape(), places, kCapacity), kCapacity);
  }
  void select(const std::vector<int64_t>& sources) { plain_.select(sources), placed_.select(sources); }

  /// Appends tokens to both caches. \return the distance of their outputs
  double append(const Tokens& tokens) {
    plain_.extend(tokens.offsets), placed_.extend(tokens.offsets);
    store_keys(tokens.k, tokens.v, tokens.offsets, plain_, kLayer);
    const auto expected =
        nn::cached_attention(tokens.q, tokens.offsets, plain_, kLayer, attention_.window, attention_.soft_cap);
    const auto view = view_of(placed_, tokens.offsets, false);
    const auto sent = [&](const at::Tensor& x) { return x.to(test_device(), attention_.type); };
    view->put(kLayer, sent(tokens.k), sent(tokens.v));
    const auto out = view->attend(kLayer, sent(tokens.q), false, attention_.window, attention_.soft_cap);
    view->write_back();
    is_in_places_ = dynamic_cast<const PlacesView*>(view.get()) != nullptr;
    return apart_by_norm(out, expected);
  }
  bool is_in_places() const { return is_in_places_; }
  const KvCache& placed() const { return placed_; }

 private:
  Attention attention_;
  KvCache plain_, placed_;
  KvArena arena_;
  bool is_in_places_ = false;
};

TEST(AtenCachePlaces, TokensAttendToTheRowsOfTheirPlaces) {
  for (const auto type : {at::kDouble, at::kBFloat16})
    for (const int64_t window : {0, 3})
      for (const double soft_cap : {0.0, 2.0}) {
        const Attention attention{type, window, soft_cap};
        Caches caches(attention);
        caches.begin();
        caches.move_to_places(4);
        for (uint64_t step = 0; step < 3; ++step) {
          EXPECT_LT(caches.append({3, 1, 30 + step, type}), attention.tolerance()) << type << ' ' << window;
          EXPECT_TRUE(caches.is_in_places());
        }
        caches.select({2, 0});
        EXPECT_LT(caches.append({2, 1, 40, type}), attention.tolerance());
        EXPECT_TRUE(caches.is_in_places());
        EXPECT_EQ(caches.placed().places()->place_B, (std::vector<int64_t>{2, 0}));
        EXPECT_LT(caches.append({2, 2, 50, type}), attention.tolerance()) << "two tokens each are a window";
        EXPECT_FALSE(caches.is_in_places());
        EXPECT_LT(caches.append({2, 1, 60, type}), attention.tolerance()) << "whose rows are in the places";
        EXPECT_TRUE(caches.is_in_places());
      }
}

TEST(AtenCachePlaces, SequencesThatShareRowsAreInNone) {
  Caches caches({});
  caches.begin();
  EXPECT_FALSE(caches.placed().places());
  caches.move_to_places(3);
  ASSERT_TRUE(caches.placed().places());
  caches.select({0, 0, 1});
  EXPECT_LT(caches.append({3, 1, 30, at::kDouble}), 1e-11);
  EXPECT_FALSE(caches.is_in_places());
  EXPECT_FALSE(caches.placed().places());
}

TEST(AtenCachePlaces, AFullPlaceAndAPlaceThatIsTooSmallAreRefused) {
  KvCache cache({kLayers, kGroups, kWidth, at::kDouble, test_device()});
  cache.sequences.resize(2);
  cache.open(std::vector<int64_t>{3, 5});
  cache.extend(std::vector<int64_t>{0, 3, 8});
  KvArena arena;
  EXPECT_THROW(cache.move_to_places(arena.memory(cache.shape(), 2, 4), 4), Error);
  EXPECT_THROW(cache.move_to_places(arena.memory(cache.shape(), 1, 6), 6), Error);
  cache.move_to_places(arena.memory(cache.shape(), 2, 6), 6);
  cache.extend(std::vector<int64_t>{0, 1, 2});
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{4, 6}));
  EXPECT_THROW(cache.extend(std::vector<int64_t>{0, 1, 2}), Error);
}

TEST(AtenCachePlaces, AnArenaKeepsItsAddressUntilItGrows) {
  const KvShape shape{kLayers, kGroups, kWidth, at::kFloat, test_device()};
  KvArena arena;
  const auto* first = arena.memory(shape, 4, 16).const_data_ptr();
  EXPECT_EQ(arena.memory(shape, 3, 16).const_data_ptr(), first);
  EXPECT_EQ(arena.memory(shape, 2, 32).sizes(), at::IntArrayRef({kLayers, 2, kGroups, 64, kWidth}));
  EXPECT_EQ(arena.memory(shape, 2, 32).const_data_ptr(), first);
  EXPECT_EQ(arena.memory(shape, 5, 16).size(3), 80);
}

}  // namespace
}  // namespace evenkeel::nn::aten
