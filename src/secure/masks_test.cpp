#include "secure/masks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "crypto/testing.h"
#include "crypto/x25519.h"
#include "secure/ring.h"

namespace evenkeel::secure {
namespace {

using evenkeel::testing::secret_of;
using evenkeel::testing::sha256_of;

const std::vector<std::vector<int64_t>> kInputs{
    {1, -2, 3, 0, 100}, {10, 20, -30, 0, -100}, {-7, 7, 0, 0, 5}, {1000, 0, 0, -1, 1}};

/// A round of members whose keys the vectors name by text.
struct Round {
  Bytes32 context = sha256_of("evenkeel secagg vector 1");
  std::map<Place, Bytes32> publics{};

  explicit Round(int members) {
    for (Place place = 0; place < members; ++place) publics[place] = crypto::x25519_public(mask_secret(place));
  }
  static Secret mask_secret(Place place) { return secret_of(concat("mask key ", place)); }
  static Secret seed(Place place) { return secret_of(concat("self mask ", place)); }
  RingVector masked(Place place, const RingVector& plain) const {
    const RingVector upload{plain.values.clone(), plain.counts.clone()};
    add_streams(upload_keys(context, place, mask_secret(place), seed(place), publics), upload);
    return upload;
  }
  Recovered recovered(std::span<const Place> lost) const {
    Recovered result;
    for (const auto& [place, key] : publics)
      if (std::find(lost.begin(), lost.end(), place) != lost.end())
        result.secrets[place] = mask_secret(place);
      else
        result.seeds[place] = seed(place);
    return result;
  }
  /// The sum of the uploads of all but `lost`, without masks.
  RingVector sum(const std::vector<RingVector>& plain, std::vector<Place> lost) const {
    const RingVector total{at::zeros_like(plain[0].values), at::zeros_like(plain[0].counts)};
    for (const auto& [place, key] : publics) {
      if (std::find(lost.begin(), lost.end(), place) != lost.end()) continue;
      const auto upload = masked(place, plain[static_cast<size_t>(place)]);
      add_to(total.values, upload.values);
      add_to(total.counts, upload.counts);
    }
    add_streams(removal_keys(context, publics, recovered(lost)), total);
    return total;
  }
};

std::vector<RingVector> inputs(at::ScalarType type) {
  std::vector<RingVector> all;
  for (const auto& values : kInputs) all.push_back({at::tensor(values).to(type), at::tensor(values)});
  return all;
}

std::vector<uint64_t> unsigned_values(const at::Tensor& ring) {
  std::vector<uint64_t> values;
  const uint64_t mask = ring.element_size() == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * ring.element_size())) - 1;
  for (int64_t i = 0; i < ring.numel(); ++i) values.push_back(static_cast<uint64_t>(ring[i].item<int64_t>()) & mask);
  return values;
}
using Listed = std::vector<uint64_t>;

TEST(Masks, MaskedValuesAreThoseOfTheVectors) {
  const Round round(4);
  EXPECT_EQ(unsigned_values(round.masked(0, inputs(at::kShort)[0]).values),
            (Listed{34042, 52680, 37931, 23372, 58083}));
  EXPECT_EQ(unsigned_values(round.masked(0, inputs(at::kInt)[0]).values),
            (Listed{3452732666, 1531876390, 2666128002, 3890624521, 1804579283}));
  EXPECT_EQ(unsigned_values(round.masked(0, inputs(at::kLong)[0]).values),
            (Listed{6579359012902175994U, 16710105085671760509U, 11454033814315053426U, 6449792052274188105U,
                    922354294880176217U}));
}

TEST(Masks, TheSumOfThreeMaskedUploadsIsThatOfTheVectorsAndStillMasked) {
  const Round round(4);
  for (const auto& [type, expected] :
       {std::pair{at::kShort, Listed{27240, 56308, 61995, 42348, 44536}},
        std::pair{at::kInt, Listed{3688786536, 2775577183, 3485511128, 3979532186, 3093431324}}}) {
    const auto plain = inputs(type);
    const auto total = at::zeros_like(plain[0].values);
    for (Place place = 0; place < 3; ++place)
      add_to(total, round.masked(place, plain[static_cast<size_t>(place)]).values);
    EXPECT_EQ(unsigned_values(total), expected);
  }
}

TEST(Masks, TheSumWithoutALostMemberIsThatOfTheOthersInEveryRing) {
  const Round round(4);
  for (const auto type : {at::kShort, at::kInt, at::kLong}) {
    const auto sum = round.sum(inputs(type), {3});
    EXPECT_TRUE(at::equal(sum.values.to(at::kLong), at::tensor({4, 25, -27, 0, 5}))) << sum.values;
    EXPECT_TRUE(at::equal(sum.counts, at::tensor({4, 25, -27, 0, 5})));
  }
}

TEST(Masks, LongUploadsOfElevenMembersAddUpWithAnyThreeLost) {
  const Round round(11);
  at::manual_seed(3);
  std::vector<RingVector> plain;
  for (int i = 0; i < 11; ++i)
    plain.push_back({at::randint(-1000, 1000, {200'003}, at::kInt), at::randint(0, 1'000'000, {33}, at::kLong)});
  for (const std::vector<Place>& lost : {std::vector<Place>{}, {0, 5, 10}, {1, 2, 3}}) {
    auto values = at::zeros({200'003}, at::kInt), counts = at::zeros({33}, at::kLong);
    for (Place place = 0; place < 11; ++place)
      if (std::find(lost.begin(), lost.end(), place) == lost.end()) {
        values += plain[static_cast<size_t>(place)].values;
        counts += plain[static_cast<size_t>(place)].counts;
      }
    const auto sum = round.sum(plain, lost);
    EXPECT_TRUE(at::equal(sum.values, values));
    EXPECT_TRUE(at::equal(sum.counts, counts));
  }
}

TEST(Masks, MaskedBytesLookUniform) {
  const Round round(3);
  const RingVector zeros{at::zeros({1 << 18}, at::kShort), at::zeros({4}, at::kLong)};
  const auto upload = round.masked(1, zeros);
  std::array<double, 256> seen{};
  const auto* bytes = static_cast<const uint8_t*>(upload.values.const_data_ptr());
  for (size_t i = 0; i < upload.values.nbytes(); ++i) seen[bytes[i]] += 1;
  const double expected = static_cast<double>(upload.values.nbytes()) / 256;
  double chi_square = 0;
  for (const double count : seen) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 255 + 5 * 22.6);  // 255 degrees of freedom: mean 255, standard deviation 22.6
  EXPECT_GT(chi_square, 255 - 5 * 22.6);
}

TEST(Masks, AnotherContextGivesOtherMasks) {
  Round one(3), other(3);
  other.context[0] ^= 1;
  const RingVector zeros{at::zeros({64}, at::kInt), at::zeros({64}, at::kLong)};
  EXPECT_FALSE(at::equal(one.masked(0, zeros).values, other.masked(0, zeros).values));
}

TEST(Masks, BothPartsHaveStreamsOfTheirOwn) {
  const RingVector zeros{at::zeros({8}, at::kLong), at::zeros({8}, at::kLong)};
  const auto upload = Round(3).masked(0, zeros);
  EXPECT_FALSE(at::equal(upload.values, upload.counts));
}

TEST(Masks, AMemberRecoveredInBothWaysOrInNoneIsRefused) {
  const Round round(4);
  const std::vector<Place> lost{3};
  auto recovered = round.recovered(lost);
  recovered.seeds[3] = Round::seed(3);
  EXPECT_THROW(removal_keys(round.context, round.publics, recovered), Error);
  recovered = round.recovered(lost);
  recovered.secrets.clear();
  EXPECT_THROW(removal_keys(round.context, round.publics, recovered), Error);
}

}  // namespace
}  // namespace evenkeel::secure
