"""The process: triggers, queues, one worker function per kind."""
