#include <csignal>

#include "app/commands.h"

namespace exode::app {
namespace {

// The only thing a signal handler may touch.
volatile std::sig_atomic_t g_interrupted = 0;

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

}  // namespace exode::app
