#include "host/tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"

namespace evenkeel::host {
namespace {

/// Returns places as a host refers to them: with the number of their segment.
Json referred(const OrderedJson& group, int64_t segment) {
  Json places = group;
  for (auto& place : places) place.push_back(segment);
  return places;
}

TEST(Tensors, PassThroughASegmentWithTheirBits) {
  const auto wide = at::arange(6, at::kFloat).reshape({2, 3});
  const TensorMap sent{
      {"plain", wide / 7},   {"turned", wide.t()},        {"long", at::arange(5, at::kLong)},
      {"flags", wide.gt(2)}, {"none", at::zeros({0, 4})}, {"scalar", at::scalar_tensor(0.1, at::kDouble)}};
  Outgoing outgoing;
  const auto places = referred(outgoing.add(sent), 5);
  const auto segment = std::make_shared<Segment>(5, outgoing.bytes());
  outgoing.copy_to(*segment);
  const SegmentsById segments{{5, segment}};
  Incoming incoming(segments);
  for (const auto& [name, tensor] : incoming.tensors(JsonView(places, "test")))
    EXPECT_TRUE(at::equal(tensor, sent.at(name))) << name;
}

TEST(Tensors, BrainFloatsAreWidened) {
  const auto values = at::arange(4, at::kFloat) / 4;
  Outgoing outgoing;
  EXPECT_EQ(outgoing.add(values.to(at::kBFloat16))[0], "f4");
  const Segment segment(1, outgoing.bytes());
  outgoing.copy_to(segment);
  EXPECT_TRUE(at::equal(at::from_blob(segment.data(), {4}, at::kFloat), values));
}

TEST(Tensors, OnePlaceIsOneTensor) {
  const SegmentsById segments{{0, std::make_shared<Segment>(0, 64)}};
  const Json group{{"phi", {"f4", {3}, 0, 0}}, {"same", {"f4", {3}, 0, 0}}, {"other", {"f4", {3}, 16, 0}}};
  Incoming incoming(segments);
  const auto tensors = incoming.tensors(JsonView(group, "test"));
  EXPECT_TRUE(tensors.at("phi").is_same(tensors.at("same")));
  EXPECT_FALSE(tensors.at("phi").is_same(tensors.at("other")));
}

TEST(Tensors, PlacesThatAreNotInASegmentAreRefused) {
  const SegmentsById segments{{2, std::make_shared<Segment>(2, 64)}};
  const Incoming incoming(segments);
  for (const char* text : {R"(["f4", [17], 0, 2])", R"(["f4", [2], 60, 2])", R"(["f4", [2], 0, 3])",
                           R"(["f4", [4611686018427387904, 4], 0, 2])", R"(["c8", [1], 0, 2])", R"(["f4", [-1], 0, 2])",
                           R"(["f4", [1], -4, 2])", R"(["f4", [1]])", R"(7)"}) {
    const Json place = Json::parse(text);
    EXPECT_THROW(incoming.view(JsonView(place, "test")), Error) << text;
  }
}

TEST(Segments, AFreeSegmentIsUsedAgainAndAKeptOneIsNot) {
  SegmentPool pool;
  auto first = pool.take(100);
  EXPECT_TRUE(first.is_new);
  const auto id = first.segment->id();
  EXPECT_NE(pool.take(100).segment->id(), id);
  pool.give_back(std::move(first.segment));
  const auto again = pool.take(200);
  EXPECT_EQ(again.segment->id(), id);
  EXPECT_FALSE(again.is_new);
}

}  // namespace
}  // namespace evenkeel::host
