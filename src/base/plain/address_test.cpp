#include "base/plain/address.h"

#include <gtest/gtest.h>

#include <string>

#include "base/testing.h"

namespace evenkeel {
namespace {

TEST(Address, IsAHostAndAPort) {
  const auto expect = [](std::string_view text, std::string_view host, int port) {
    const auto address = parse_address(text, "--listen", 0);
    EXPECT_EQ(address.host, host) << text;
    EXPECT_EQ(address.port, port) << text;
    EXPECT_EQ(address.text(), text);
  };
  expect("server:8000", "server", 8000);
  expect("a-b.example_1.org:1", "a-b.example_1.org", 1);
  expect("10.0.0.1:65535", "10.0.0.1", 65535);
  expect("[::1]:0", "::1", 0);
  expect("[2001:db8::a:1]:18142", "2001:db8::a:1", 18142);
  expect("[fe80::1%eth0]:80", "fe80::1%eth0", 80);
  expect("[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80);
  expect("münchen:80", "münchen", 80);
}

TEST(Address, EverythingElseIsRefusedWithWhatIsExpected) {
  for (const std::string text : {"http://127.0.0.1:8000",
                                 "https://server:8000",
                                 "tcp://server:8000",
                                 "http://server",
                                 "server",
                                 "server:",
                                 ":8000",
                                 "",
                                 ":",
                                 "server:0",
                                 "server:65536",
                                 "server:99999999999",
                                 "server:-1",
                                 "server:+1",
                                 "server:8a",
                                 "server: 80",
                                 "server:80 ",
                                 " server:80",
                                 "server:80/",
                                 "server:80/v1",
                                 "server/v1:80",
                                 "me@server:80",
                                 "me:secret@server:80",
                                 "server:80?x",
                                 "server#x:80",
                                 "::1:80",
                                 "::1",
                                 "[::1]",
                                 "[::1]80",
                                 "[::1:80",
                                 "::1]:80",
                                 "[]:80",
                                 "[server]:80",
                                 "[10.0.0.1]:80",
                                 "[::1%]:80",
                                 "[[::1]]:80",
                                 "[::1]:80:90",
                                 "1:2:3",
                                 "ser ver:80",
                                 "ser\tver:80",
                                 "ser\nver:80",
                                 "\xff:80"}) {
    const auto refused = testing::refusal([&] { parse_address(text, "--superlink"); });
    EXPECT_NE(refused.find("--superlink is "), std::string::npos) << text << ": " << refused;
    EXPECT_NE(refused.find("expected HOST:PORT with a port of 1 to 65535"), std::string::npos) << text;
  }
  EXPECT_NE(testing::refusal([] { parse_address("http://a:1", "--x"); }).find("without a scheme"), std::string::npos);
  EXPECT_NE(testing::refusal([] { parse_address("::1:80", "--x"); }).find("in brackets, as in [::1]"),
            std::string::npos);
}

TEST(Address, OfAServerMayHaveTheSchemeThatTheServerPrints) {
  const auto expect = [](std::string_view text, std::string_view address, Scheme scheme) {
    const auto parsed = parse_server_address(text, "--server");
    EXPECT_EQ(parsed.text(), address) << text;
    EXPECT_EQ(parsed.scheme, scheme) << text;
  };
  expect("server:8000", "server:8000", Scheme::kNone);
  expect("http://server:8000", "server:8000", Scheme::kHttp);
  expect("https://10.0.0.1:8000/", "10.0.0.1:8000", Scheme::kHttps);
  expect("https://[fe80::1%eth0]:443", "[fe80::1%eth0]:443", Scheme::kHttps);
  for (const std::string text : {"ftp://server:80", "https://server", "https://server:80//", "https://", "https:///",
                                 "http://https://server:80", "server:80/", "https://me@server:80", "https://:80"})
    EXPECT_NE(testing::refusal([&] { parse_server_address(text, "--server"); }).find("--server is " + text),
              std::string::npos)
        << text;
}

TEST(Address, OfIpv6MayNameAnInterface) {
  EXPECT_EQ(without_zone("fe80::1%eth0"), "fe80::1");
  EXPECT_EQ(without_zone("::1"), "::1");
  for (const std::string text : {"[fe80::1%]:80", "[fe80::1%a b]:80", "[fe80::1%a%b]:80", "[fe80::1%a/b]:80"})
    EXPECT_NE(testing::refusal([&] { parse_address(text, "--server"); }), "") << text;
}

TEST(Address, AHostAndAPortMayStandAlone) {
  EXPECT_EQ(parse_host("::1", "MASTER_ADDR"), "::1");
  EXPECT_EQ(parse_host("[fd00::2]", "MASTER_ADDR"), "fd00::2");
  EXPECT_EQ(parse_host("node07", "MASTER_ADDR"), "node07");
  for (const auto* host : {"", "http://node07", "node07:80", "[node07]", "a b", "me@node07"})
    EXPECT_NE(testing::refusal([&] { parse_host(host, "MASTER_ADDR"); }).find("MASTER_ADDR is "), std::string::npos);
  EXPECT_EQ(parse_port("29500", "MASTER_PORT"), 29500);
  for (const auto* port : {"", "0", "65536", "x", "-1"})
    EXPECT_NE(testing::refusal([&] { parse_port(port, "MASTER_PORT"); }).find("MASTER_PORT is "), std::string::npos);
}

}  // namespace
}  // namespace evenkeel
