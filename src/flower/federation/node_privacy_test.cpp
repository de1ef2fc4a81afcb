// Tests which rows a node takes that is private for single rows.
#include "flower/federation/node_privacy.h"

#include "flower/federation/node_testing.h"

namespace evenkeel::flower {
namespace {

TEST_F(NodeGives, ARowThatItsPrivacyCoversIsInOneFile) {
  write("copy.jsonl", rows("patient", 9));
  options_.data.push_back(path("copy.jsonl"));
  EXPECT_EQ(offered({}), "") << "a node without privacy is only warned";
  restart();
  options_.privacy = {.epsilon = 8, .delta = 1e-3, .clip = 0.1, .lot = 3};
  const auto told = offered({});
  EXPECT_NE(told.find("jsonl: this row or file cannot be used"), std::string::npos) << told;
  EXPECT_EQ(told.find(folder_.path().string()), std::string::npos) << "the server learns no path: " << told;
  const auto offer = record::write(offer_of(server_of(config()))).dump();
  const auto said = testing::refusal([&] { node().answer({.run = run_, .kind = kOfferEnvelope, .header = offer}); });
  EXPECT_NE(said.find(concat("copy.jsonl is a copy of ", path("train.jsonl"))), std::string::npos) << said;
  EXPECT_NE(said.find("train twice, allowed with --privacy-epsilon: every file once"), std::string::npos) << said;
  restart();
  options_.data.pop_back();
  run_ = "another";  // in which it has not agreed to other files
  EXPECT_EQ(offered({}), "");
}

}  // namespace
}  // namespace evenkeel::flower
