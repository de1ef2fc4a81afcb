// A node and its server name the same method in Python, or the node does not join.
#include "flower/federation/agreed_terms.h"
#include "flower/federation/node_testing.h"

namespace evenkeel::flower {
namespace {

/// Adds a method in Python without hooks of its own, which both sides of these tests then know.
const methods::MethodEntry& own_method() {
  static const auto name = [] {
    const Json json{{"name", "own-of-node"},
                    {"title", "Own"},
                    {"paper", ""},
                    {"sends", ""},
                    {"file", "/home/site/own.py"},
                    {"class", "Own"},
                    {"sha256", std::string(64, 'a')},
                    {"base", "fedit"},
                    {"base_options", ""},
                    {"hooks", Json::array()},
                    {"options", Json::array()},
                    {"metrics", Json::object()},
                    {"seconds", 10}};
    methods::add_method(methods::described_entry(methods::read_description(JsonView(json, "test"))));
    return std::string("own-of-node");
  }();
  return methods::find_method(name);
}

class NodeWithMethod : public NodeGives {
 protected:
  Offer offer() const { return offer_of(server_of(config({}, own_method().name))); }
};

TEST_F(NodeWithMethod, JoinsWhereTheServersSourceIsItsOwn) { EXPECT_EQ(offered(offer()), ""); }

TEST_F(NodeWithMethod, RefusesAnotherSourceInOneLineWithBothDigests) {
  auto other = offer();
  other.method.source = std::string(64, 'b');
  const auto said = offered(other);
  EXPECT_NE(said.find(concat("method own-of-node: the server's source has sha256 ", std::string(64, 'b'),
                             ", this node's (own.py:Own) ", std::string(64, 'a'))),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find('\n'), std::string::npos);
  EXPECT_EQ(said.find("/home/site"), std::string::npos) << "the server learns no folder";
  EXPECT_EQ(offered(offer()), "") << "the same source";
}

TEST_F(NodeWithMethod, RefusesOtherOptionsOfTheSameSource) {
  auto other = offer();
  const auto own = other.method.description;
  other.method.description = std::string(64, 'c');
  const auto said = offered(other);
  EXPECT_NE(said.find(std::string(64, 'c')), std::string::npos) << said;
  EXPECT_NE(said.find(own), std::string::npos) << said;
}

TEST_F(NodeWithMethod, RefusesAClassOnOneSideOnly) {
  auto compiled = offer();
  compiled.method = {};
  EXPECT_NE(offered(compiled).find("own-of-node is a class in Python at this node (own.py:Own), and compiled"),
            std::string::npos);
  auto described = offer_of(server_of(config()));
  described.method = {.name = "fedit", .source = std::string(64, 'a'), .description = std::string(64, 'a')};
  EXPECT_NE(offered(described).find("method fedit is a class in Python at the server, and compiled"),
            std::string::npos);
}

TEST_F(NodeWithMethod, AgreesToOneSource) {
  const auto now = offer();
  auto later = now;
  later.method.source = std::string(64, 'b');
  const auto changes = changes_of(agreed_keys(later), agreed_keys(now));
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_TRUE(changes[0].starts_with("source of the method is ")) << changes[0];
}

TEST(MethodDigests, AreNotOfThePath) {
  auto json = own_method().described->json;
  json["file"] = "/elsewhere/own.py";
  const auto moved = methods::described_entry(methods::read_description(JsonView(json, "test")));
  EXPECT_EQ(methods::digests_of(moved), methods::digests_of(own_method()));
  json["seconds"] = 11;
  const auto slower = methods::described_entry(methods::read_description(JsonView(json, "test")));
  EXPECT_NE(methods::digests_of(slower).description, methods::digests_of(own_method()).description);
  EXPECT_EQ(methods::digests_of(methods::find_method("fedit")), methods::MethodDigests());
}

}  // namespace
}  // namespace evenkeel::flower
