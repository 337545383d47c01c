"""Commands about device time: predictions before a run, and pictures of one."""
